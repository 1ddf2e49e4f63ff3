//! What is encoded is decoded, small, and nothing else does harm.

use super::*;
use proptest::prelude::*;

fn key(len: u64) -> DataKey {
    DataKey {
        nid: U64::new(7),
        offset: U64::new(100),
        len: U64::new(len),
        generation: U32::new(3),
        reserved: U32::ZERO,
    }
}

#[test]
fn what_is_encoded_is_decoded() {
    let deltas = [
        Delta::Init { block: 9, kind: BlockKind::Bucket, owner: 5, generation: 2 },
        Delta::Write { block: 9, kind: BlockKind::Bucket, offset: 4093, bytes: &[1, 2, 3] },
        Delta::Bits { block: 4, first: 3, count: 30_000, set: true },
        Delta::Bits { block: 4, first: 32_511, count: 1, set: false },
        Delta::Forget { block: 77 },
        Delta::Data { key: key(5), bytes: b"hello" },
        Delta::Supersede { key: key(u64::MAX) },
    ];
    let payload = encoded(&deltas);
    let back: Vec<_> = decode(&payload).map(|d| d.expect("what we encoded")).collect();
    assert_eq!(back, deltas);
}

#[test]
fn what_goes_on_or_repeats_takes_little() {
    let write = |block, offset, bytes| Delta::Write { block, kind: BlockKind::Node, offset, bytes };
    assert_eq!(encoded(&[write(9, 0, &[7; 8])]).len(), 16 + 8);
    assert_eq!(encoded(&[write(9, 0, &[7; 8]), write(9, 64, &[1; 8])]).len(), 16 + 8 + 8 + 8);
    assert_eq!(encoded(&[write(9, 0, &[7; 8]), write(8, 64, &[1; 8])]).len(), 2 * (16 + 8));
    assert_eq!(encoded(&[write(9, 0, &[7; 256])]).len(), 16 + 8);
    let other = Delta::Write { block: 9, kind: BlockKind::Nat, offset: 0, bytes: &[1; 8] };
    assert_eq!(encoded(&[write(9, 0, &[7; 8]), other]).len(), 2 * (16 + 8));
    let between = [write(9, 0, &[7; 8]), Delta::Forget { block: 3 }, write(9, 8, &[7; 8])];
    assert_eq!(encoded(&between).len(), 3 * 16 + 2 * 8);
}

#[test]
fn what_goes_on_with_nothing_is_an_error() {
    let mut payload = encoded(&[
        Delta::Write { block: 9, kind: BlockKind::Node, offset: 0, bytes: &[1; 8] },
        Delta::Write { block: 9, kind: BlockKind::Node, offset: 64, bytes: &[2; 8] },
    ]);
    assert_eq!(decode(&payload).filter(Result::is_ok).count(), 2);
    assert!(decode(&payload[24..]).next().expect("one").is_err());
    // As often as it fits, and once more.
    payload[14..16].copy_from_slice(&511u16.to_le_bytes());
    assert_eq!(decode(&payload).filter(Result::is_ok).count(), 513);
    payload[14..16].copy_from_slice(&512u16.to_le_bytes());
    assert!(decode(&payload).next().expect("one").is_err());
}

fn encoded(deltas: &[Delta<'_>]) -> Vec<u8> {
    let mut payload = Vec::new();
    let mut encoder = Encoder::new(&mut payload);
    deltas.iter().for_each(|delta| encoder.add(delta));
    payload
}

#[test]
fn bits_are_set_and_cleared_by_runs() {
    let mut page = [0; BLOCK_SIZE];
    fill_bits(&mut page, 3, 14, true);
    assert_eq!(page[BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + 4], [0xf8, 0xff, 0x01, 0]);
    fill_bits(&mut page, 8, 8, false);
    fill_bits(&mut page, 4, 1, false);
    assert_eq!(page[BLOCK_HEADER_SIZE..BLOCK_HEADER_SIZE + 4], [0xe8, 0, 0x01, 0]);
}

#[test]
fn impossible_deltas_are_errors() {
    let payload = encoded(&[Delta::Write { block: 1, kind: BlockKind::Nat, offset: 4090, bytes: &[0; 16] }]);
    assert!(decode(&payload).next().expect("one").is_err());
    let payload = encoded(&[Delta::Bits { block: 1, first: 32_000, count: 513, set: true }]);
    let mut found = decode(&payload);
    assert!(found.next().expect("one").is_err());
    assert!(found.next().is_none());
}

/// A page of few different words, so that there is much to repeat.
fn words() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![4 => Just([0; 8]), 2 => Just([5; 8]), 1 => any::<[u8; 8]>()];
    (proptest::collection::vec(word, 0..60), 0usize..8)
        .prop_map(|(words, rest)| [words.concat(), vec![3; rest]].concat())
}

proptest! {
    #[test]
    fn writes_are_decoded_to_the_same_page(
        writes in proptest::collection::vec((0u64..3, 0usize..400, words()), 0..12)
    ) {
        let deltas: Vec<_> = writes
            .iter()
            .map(|(block, at, bytes)| {
                Delta::Write { block: *block, kind: BlockKind::Node, offset: at * 8, bytes }
            })
            .collect();
        let payload = encoded(&deltas);
        let plain: usize = deltas.iter().map(|d| DELTA_HEADER_SIZE + d.body_len().next_multiple_of(8)).sum();
        prop_assert!(payload.len() <= plain);
        let (mut before, mut after) = ([[0; BLOCK_SIZE]; 3], [[0; BLOCK_SIZE]; 3]);
        let block = |delta: &Delta<'_>| delta.block().expect("a write has one") as usize;
        deltas.iter().for_each(|delta| delta.apply(&mut before[block(delta)]));
        for delta in decode(&payload) {
            let delta = delta.expect("what we encoded");
            delta.apply(&mut after[block(&delta)]);
        }
        prop_assert!(before == after);
    }

    #[test]
    fn any_payload_is_decoded_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 0u8..9) {
        let mut bytes = bytes;
        if bytes.len() > 15 {
            bytes[12] = kind;
            (bytes[11], bytes[15]) = (0, 0);
        }
        if bytes.len() > 31 {
            bytes[31] = FURTHER;
        }
        let mut page = [0; BLOCK_SIZE];
        for delta in decode(&bytes).flatten() {
            delta.apply(&mut page);
        }
    }
}
