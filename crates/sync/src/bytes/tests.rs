//! Tests that copies write the right bytes and no others.

use super::*;

fn run() -> Vec<AtomicU64> {
    (0..128_u64).map(|i| AtomicU64::new(i.wrapping_mul(0x0123_4567_89ab_cdef))).collect()
}

#[test]
fn every_offset_and_length_copies_the_same_bytes() {
    let words = run();
    let shared = SharedBytes::new(&words);
    // SAFETY: no thread writes in this test.
    let plain = unsafe { shared.as_slice() }.to_vec();
    for offset in 0..24 {
        for len in (0..200).chain(500..530).chain([shared.len() - offset]) {
            let mut wide = vec![0; len];
            shared.copy_to(offset, &mut wide);
            assert_eq!(wide, plain[offset..offset + len], "offset {offset}, length {len}");
            let mut words = vec![0; len];
            shared.copy_words_to(offset, &mut words);
            assert_eq!(words, wide);
        }
    }
}

#[test]
fn writes_touch_nothing_else() {
    for offset in 0..20 {
        for len in (0..40).chain([63, 64, 65, 100, 999]) {
            let words = run();
            let shared = SharedBytes::new(&words);
            let mut expected = vec![0; shared.len()];
            shared.copy_to(0, &mut expected);
            let from: Vec<u8> = (0..len).map(|i| 0x80 | i as u8).collect();
            shared.copy_from(offset, &from);
            expected[offset..offset + len].copy_from_slice(&from);
            let mut actual = vec![0; shared.len()];
            shared.copy_to(0, &mut actual);
            assert_eq!(actual, expected);
        }
    }
}

#[test]
fn streaming_overwrites_everything() {
    for len in [64, 4096, 72] {
        let words: Vec<_> = (0..len / 8).map(|_| AtomicU64::new(u64::MAX)).collect();
        let from: Vec<u8> = (0..len).map(|i| i as u8).collect();
        SharedBytes::new(&words).stream_from(&from);
        let mut copy = vec![0; len];
        SharedBytes::new(&words).copy_to(0, &mut copy);
        assert_eq!(copy, from);
    }
}

#[test]
fn shared_bytes_go_to_shared_bytes() {
    let from = run();
    let from = SharedBytes::new(&from);
    for len in [0, 8, 64, 72, 512, 1024] {
        let words = [run(), run()];
        let [copied, streamed] = [0, 1].map(|way| SharedBytes::new(&words[way]));
        copied.suffix(0).prefix(len).copy_from_shared(from.suffix(1024 - len));
        streamed.suffix(1024 - len).stream_from_shared(from.prefix(len));
        for at in 0..1024 {
            let byte = |bytes: SharedBytes<'_>, at| {
                let mut byte = [0];
                bytes.copy_to(at, &mut byte);
                byte[0]
            };
            let begin = 1024 - len;
            assert_eq!(byte(copied, at), byte(from, if at < len { begin + at } else { at }));
            assert_eq!(byte(streamed, at), byte(from, if at < begin { at } else { at - begin }));
        }
    }
}

#[test]
fn streamed_zeros_are_everywhere() {
    for (len, soon) in [(4096, 0..0), (4096, 8..16), (4096, 60..70), (4096, 4000..4096), (4096, 0..4096), (72, 8..9)] {
        let words: Vec<_> = (0..len / 8).map(|_| AtomicU64::new(u64::MAX)).collect();
        SharedBytes::new(&words).stream_zeros(soon);
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }
}

#[test]
fn only_whole_words_can_be_shared() {
    let mut words = [0_u64; 4];
    // SAFETY: any bytes are valid `u64`s.
    let (_, bytes, _) = unsafe { words.align_to_mut::<u8>() };
    assert!(SharedBytes::of(&mut bytes[1..9]).is_none() && SharedBytes::of(&mut bytes[..7]).is_none());
    SharedBytes::of(&mut bytes[8..24]).unwrap().copy_from(3, &[7; 2]);
    assert_eq!(bytes[11..13], [7; 2]);
}

#[test]
fn zeroing_starts_where_it_should() {
    for offset in [0, 1, 7, 8, 9, 1000, 1023, 1024] {
        let words = run();
        let shared = SharedBytes::new(&words);
        let mut before = vec![0; shared.len()];
        shared.copy_to(0, &mut before);
        shared.zero_from(offset);
        let mut after = vec![0; shared.len()];
        shared.copy_to(0, &mut after);
        assert_eq!(after[..offset], before[..offset]);
        assert!(after[offset..].iter().all(|&byte| byte == 0), "offset {offset}");
    }
}

#[test]
#[should_panic(expected = "outside")]
fn a_range_past_the_end_is_refused() {
    SharedBytes::new(&run()).copy_to(1020, &mut [0; 5]);
}
