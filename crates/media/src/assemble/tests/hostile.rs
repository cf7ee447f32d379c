//! Random damage, and floods.

use bytes::BufMut;

use super::units::{UnitRole, unit_role};
use super::*;

fn units_of(tag: &Tag) -> Vec<Bytes> {
    let data = tag.payload().slice(tag.class().data_at..);
    let read = Units::read(&data, 4, None);
    assert!(!read.is_truncated && !read.has_empty, "{tag:?}");
    read.units
}

/// Pseudo-random numbers from a seed (Marsaglia's xorshift).
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % limit
    }
}

/// Returns a payload with some bytes removed, inserted or changed.
fn damaged(payload: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = payload.to_vec();
    for _ in 0..numbers.below(3) {
        let at = numbers.below(bytes.len() + 1);
        match numbers.below(5) {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at..at, [[0; 4], [0, 0, 0, 1], [0xff; 4]][numbers.below(3)])),
            2 if at < bytes.len() => bytes[at] = numbers.below(256) as u8,
            3 if at < bytes.len() => drop(bytes.remove(at)),
            _ => {}
        }
    }
    bytes
}

#[test]
fn any_input_gives_valid_units_and_bounded_memory() {
    for seed in 1..=400u64 {
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15 ^ seed);
        let form = FORMS[numbers.below(3)];
        let (mut assembler, mut out) = (Assembler::default(), Vec::new());
        let (mut taken, mut given) = (0, 0);
        let mut has_header = false;
        for number in 0..200 {
            let time = number as u32 / 3 * 40;
            let units = [
                form.idr(),
                form.other(),
                form.slice(true),
                form.slice(false),
                form.sei(),
                form.delimiter(),
                form.filler(),
                Bytes::new(),
                form.sets()[numbers.below(2)].clone(),
                form.sets().pop().expect("a PPS"),
            ];
            let some: Vec<_> =
                (0..numbers.below(5)).map(|_| units[numbers.below(units.len())].clone()).collect();
            let tag = match numbers.below(12) {
                0 => form.start(),
                1 => tag(Kind::Audio, time, &[&[0xaf, 1][..], &adts(&[0x21, 9])].concat()),
                2 => tag(Kind::Audio, time, AAC),
                3 => {
                    let head = if numbers.below(2) == 0 { form.key } else { form.inter };
                    tag(Kind::Video, time, &[head, &start_codes(&some)].concat())
                }
                kind => form.frame(time, kind % 2 == 0, &some),
            };
            let hurt = numbers.below(4) == 0;
            let payload =
                if hurt { damaged(&tag.payload(), &mut numbers) } else { tag.payload().to_vec() };
            let tag = self::tag(tag.kind(), time, &payload);
            taken += payload.len();
            assembler.push(tag, &mut out);
        }
        assembler.flush(&mut out);
        for tag in out {
            given += tag.payload().len();
            let class = tag.class();
            if class.codec != Some(form.codec) || class.role == Role::Other {
                continue;
            }
            let data = tag.payload().slice(class.data_at..);
            if class.role == Role::SequenceHeader {
                // A damaged header that cannot be parsed passes unchanged, and so do later frames.
                has_header = Video::new(form.codec, data).is_some();
            } else if has_header {
                let read = Units::read(&data, 4, Some(units::Form::Lengths(4)));
                assert!(!read.is_truncated && !read.has_empty, "seed {seed}: {tag:?}");
                let places: Vec<_> = read.units.iter().map(|u| unit_role(form.codec, u)).collect();
                let is_slice =
                    |p: &UnitRole| matches!(p, UnitRole::FirstSlice { .. } | UnitRole::Slice);
                assert!(places.iter().any(is_slice), "seed {seed}: {places:?}");
            }
        }
        // Headers are built once per change, and key frames repeated once.
        assert!(given < 4 * taken + 4_096, "seed {seed}: {given} of {taken}");
    }
}

#[test]
fn units_that_wait_for_a_frame_are_bounded() {
    for form in FORMS {
        let (mut assembler, mut out) = (Assembler::default(), Vec::new());
        let sei = form.frame(0, false, &[form.unit((6, 39), &[5; 60_000])]);
        (0..1_000).for_each(|_| assembler.push(sei.clone(), &mut out));
        assembler.push(form.start(), &mut out);
        (0..1_000).for_each(|_| assembler.push(sei.clone(), &mut out));
        assembler.push(form.frame(0, true, &[form.idr()]), &mut out);
        let slice = form.unit((5, 19), &[&[0x46][..], &[7; 60_000]].concat());
        let slice = form.frame(0, true, &[slice]);
        (0..1_000).for_each(|_| assembler.push(slice.clone(), &mut out));
        assembler.flush(&mut out);
        let sizes = out.iter().map(|tag| tag.payload().len());
        assert!(sizes.clone().max() <= Some(crate::flv::MAX_PAYLOAD / 2));
        assert!(sizes.sum::<usize>() < 80_000_000);
        let mut many = BytesMut::from(form.inter);
        (0..10_000).for_each(|_| many.put_slice(&lengths(&[form.slice(false)], 4)));
        assembler.push(tag(Kind::Video, 999, &many), &mut out);
        assembler.flush(&mut out);
        assert!(units_of(out.last().expect("one")).len() <= units::MAX_UNITS);
    }
}
