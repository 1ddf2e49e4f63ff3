//! Whether calls have slept.

use narufs_engine::blocking::set_hook;
use std::cell::Cell;
use std::rc::Rc;

/// Makes calls, and says whether this thread has slept in one of them, or was about to: for the device, for memory, or for
/// another thread. For those who have more to do on a thread, and move calls elsewhere when they come to take long.
///
/// ```
/// # use narufs::{Fs, ScratchOptions};
/// let fs = Fs::scratch(&ScratchOptions::new(64 << 20))?;
/// let (written, has_slept) = narufs::noticing_sleep(|| fs.write("/notes", "in memory"));
/// written?;
/// # let _ = has_slept;
/// # Ok::<(), narufs::Error>(())
/// ```
pub fn noticing_sleep<T>(calls: impl FnOnce() -> T) -> (T, bool) {
    let slept = Rc::new(Cell::new(false));
    let note = Rc::clone(&slept);
    let done = before_sleep(calls, move || note.set(true));
    (done, slept.get())
}

/// Makes calls, and tells each time when this thread is about to sleep in one of them, before it does: what is told may have
/// others not come to sleep as well.
pub fn before_sleep<T>(calls: impl FnOnce() -> T, tell: impl Fn() + 'static) -> T {
    let before = Rc::new(set_hook(None));
    let outer = Rc::clone(&before);
    set_hook(Some(Box::new(move || {
        tell();
        // Who has asked before is told too.
        if let Some(outer) = &*outer {
            outer();
        }
    })));
    let before = Before(Some(before));
    let done = calls();
    drop(before);
    done
}

/// The thread's hook of before, set again on the way out, after a panic too.
struct Before(Option<Rc<Option<narufs_engine::blocking::Hook>>>);

impl Drop for Before {
    fn drop(&mut self) {
        // The one that calls it goes first, so that it is had by nobody else.
        drop(set_hook(None));
        set_hook(self.0.take().and_then(Rc::into_inner).flatten());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FormatOptions, Fs, MountOptions};

    #[test]
    fn a_sync_is_noticed_and_a_read_from_memory_is_not() {
        let place = tempfile::tempdir().expect("a place");
        let image = place.path().join("image");
        Fs::format(&image, &FormatOptions::new().size(16 << 20)).expect("room");
        let fs = Fs::open(&image, &MountOptions::new()).expect("a good image");
        let file = fs.create_new("/file").expect("room");
        let content: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
        file.write_all_at(&content, 0).expect("room");
        let (synced, slept) = noticing_sleep(|| file.sync_all());
        assert!(synced.is_ok() && slept);
        file.write_all_at(b"more", 0).expect("room");
        let ((synced, inner), outer) = noticing_sleep(|| noticing_sleep(|| file.sync_all()));
        assert!(synced.is_ok() && inner && outer, "both are told");
        let mut bytes = vec![0; 99_000];
        let (read, slept) = noticing_sleep(|| file.read_cached_at(&mut bytes, 777));
        assert!(read.expect("it is open for reading") && !slept);
        assert!(bytes == content[777..99_777], "the beginning alone has changed");
        let is_told = Rc::new(Cell::new(false));
        let (tell, done) = (Rc::clone(&is_told), Rc::clone(&is_told));
        file.write_all_at(b"more", 0).expect("room");
        let told_first = before_sleep(|| file.sync_all().map(|()| done.get()), move || tell.set(true));
        assert!(told_first.is_ok_and(|told| told), "it was told by the time it was synced");
        assert!(
            !file.read_cached_at(&mut bytes, u64::MAX).expect("it is open for reading"),
            "no file is there"
        );
        assert!(!file.read_cached_at(&mut bytes, 1001).expect("it is open for reading"), "it ends before");
    }
}
