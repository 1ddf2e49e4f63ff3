//! A port over a pipe.

use super::*;
use crate::wire::Opcode;
use zerocopy::FromZeros;

#[test]
fn a_message_is_one_write_with_its_length() {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    let port = DevicePort::new(writer, 0);
    port.send(9, -libc::ENOENT, &[b"ab", b"cde"]).expect("room in the pipe");
    let mut got = [0; 64];
    assert_eq!(rustix::io::read(&reader, &mut got).expect("the message"), 21);
    assert_eq!(&got[..16], OutHeader { len: 21, error: -libc::ENOENT, unique: 9 }.as_bytes());
    assert_eq!(&got[16..21], b"abcde");
}

/// A WRITE of so many bytes, each `byte`.
fn write_of(len: usize, byte: u8) -> Vec<u8> {
    let mut request = vec![byte; BEFORE_DATA + len];
    let header =
        InHeader { len: request.len() as u32, opcode: Opcode::Write as u32, ..InHeader::new_zeroed() };
    request[..size_of::<InHeader>()].copy_from_slice(header.as_bytes());
    request
}

#[test]
fn what_is_small_makes_room_for_the_next_reader_where_many_sleep() {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    let port = DevicePort::new(reader, 1 << 20);
    let mut slots = [port.slot(), port.slot()];
    let request = write_of(PAGE, 7);
    rustix::io::write(&writer, &request).expect("room in the pipe");
    assert!(port.receive(&mut slots[0]).expect("bytes"));
    let read_into = slots[0].request().as_ptr();
    port.settle(&mut slots[0], IDLE_SPARES);
    assert_eq!(slots[0].request().as_ptr(), read_into, "few sleep");
    port.settle(&mut slots[0], IDLE_SPARES + 1);
    assert_eq!((slots[0].request(), port.requests.len()), (&request[..], 1));
    assert_eq!(slots[0].request()[BEFORE_DATA..].as_ptr().addr() % PAGE, 0, "it can go to a device");
    let (whole, reply) = port.open(&mut slots[0]);
    assert!(whole.is_some() && reply.is_empty(), "only reads are answered from a buffer");
    rustix::io::write(&writer, &request).expect("room in the pipe");
    assert!(port.receive(&mut slots[1]).expect("bytes"));
    assert_eq!((slots[1].request().as_ptr(), port.requests.len()), (read_into, 0));
    // Both are over.
    slots.iter_mut().for_each(|slot| port.rest(slot));
    assert_eq!(port.requests.len(), 1);
    assert!(slots[0].request().is_empty());
    port.end();
    assert_eq!(port.requests.len(), 0);
}

#[test]
fn a_small_read_keeps_no_large_buffer_where_many_sleep() {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    let port = DevicePort::new(reader, 1 << 20);
    let mut slot = port.slot();
    for (size, asleep, wanted, kept) in
        [(1 << 20, 100, 1 << 20, 0), (PAGE, IDLE_SPARES, 1 << 20, 0), (PAGE, IDLE_SPARES + 1, PAGE, 1)]
    {
        let arguments = ReadIn { size: size as u32, ..ReadIn::new_zeroed() };
        let len = (size_of::<InHeader>() + size_of::<ReadIn>()) as u32;
        let header = InHeader { len, opcode: Opcode::Read as u32, ..InHeader::new_zeroed() };
        rustix::io::write(&writer, &[header.as_bytes(), arguments.as_bytes()].concat())
            .expect("room in the pipe");
        assert!(port.receive(&mut slot).expect("bytes"));
        port.settle(&mut slot, asleep);
        let (_, buffer) = port.open(&mut slot);
        assert_eq!((buffer.len(), port.replies.len()), (wanted, kept), "{size} bytes, {asleep} asleep");
    }
}

#[test]
fn what_is_large_stays_where_it_is() {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    rustix::pipe::fcntl_setpipe_size(&writer, 1 << 20).expect("a large pipe");
    let port = DevicePort::new(reader, 1 << 20);
    let mut slot = port.slot();
    rustix::io::write(&writer, &write_of(SMALL + ARGUMENTS, 7)).expect("room in the pipe");
    assert!(port.receive(&mut slot).expect("bytes"));
    let read_into = slot.request().as_ptr();
    port.settle(&mut slot, 100);
    assert_eq!((slot.request().as_ptr(), port.requests.len()), (read_into, 0));
}

#[test]
fn a_look_waits_for_nothing_and_a_read_after_it_waits() {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    let port = DevicePort { is_own: true, ..DevicePort::new(reader, 0) };
    let mut slot = port.slot();
    assert!(port.can_look());
    assert_eq!(port.look(&mut slot).expect("an open pipe"), None);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| port.receive(&mut port.slot()));
        rustix::io::write(&writer, b"request").expect("room in the pipe");
        assert!(waiting.join().expect("it returns").expect("bytes"));
    });
    let nonblocking = rustix::fs::fcntl_getfl(&port.fd).expect("its flags").contains(OFlags::NONBLOCK);
    assert!(!nonblocking);
    rustix::io::write(&writer, b"request").expect("room in the pipe");
    assert_eq!(port.look(&mut slot).expect("an open pipe"), Some(true));
    drop(writer);
    assert_eq!(port.look(&mut slot).expect("an end"), Some(false));
}

#[test]
fn one_that_is_ended_reads_no_more_and_lets_its_file_go() {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    let ending = Arc::new(Ending::new().expect("a descriptor"));
    let port = DevicePort::new(reader, 0).ended_by(Some(Arc::clone(&ending)));
    let mut slot = port.slot();
    rustix::io::write(&writer, b"request").expect("room in the pipe");
    assert!(port.receive(&mut slot).expect("bytes"));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| port.receive(&mut port.slot()));
        ending.come();
        assert!(!waiting.join().expect("it returns").expect("an end"));
    });
    port.end();
    assert_eq!(rustix::io::write(&writer, b"request"), Err(Errno::PIPE));
    assert!(port.send(9, 0, &[b"ab"]).is_err());
}

#[test]
fn whether_an_inherited_descriptor_waits_is_settled() {
    let (reader, _writer) = rustix::pipe::pipe().expect("a pipe");
    for flags in [OFlags::empty(), OFlags::NONBLOCK] {
        rustix::fs::fcntl_setfl(&reader, flags).expect("a pipe");
        let again = reader.try_clone().expect("a descriptor");
        let port = DevicePort::new(again, 0).inherited().expect("a pipe");
        assert!(!rustix::fs::fcntl_getfl(&reader).expect("its flags").contains(OFlags::NONBLOCK));
        assert_eq!(port.look(&mut port.slot()).expect("an open pipe"), None, "it waits for nothing");
    }
}

#[test]
fn a_closed_device_is_the_end() {
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    let port = DevicePort::new(reader, 0);
    drop(writer);
    assert!(!port.receive(&mut port.slot()).expect("an end"));
}
