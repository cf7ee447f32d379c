//! Bit-level parsing of codec headers, up to the frame size in a sequence parameter set.
//!
//! Rec. ITU-T H.264, section 7.3.2.1.1; Rec. ITU-T H.265, section 7.3.2.2; AV1 Bitstream & Decoding
//! Process Specification, section 5.5. Only the path to the fields that a container needs is
//! parsed. Functions return `None` if the data is truncated or invalid.

/// Reader of bits, most significant first.
#[derive(Clone, Debug)]
pub(crate) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bits<'a> {
    /// Starts reading at the first bit of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Reads `count` bits, at most 32.
    pub(crate) fn u(&mut self, count: usize) -> Option<u32> {
        let mut value = 0u64;
        for at in self.at..self.at.checked_add(count)? {
            value = value << 1 | u64::from(self.bytes.get(at / 8)? >> (7 - at % 8) & 1);
        }
        self.at += count;
        u32::try_from(value).ok()
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        Some(self.u(1)? == 1)
    }

    pub(crate) fn skip(&mut self, count: usize) -> Option<()> {
        self.at = self.at.checked_add(count).filter(|at| *at <= self.bytes.len() * 8)?;
        Some(())
    }

    /// Reads an unsigned Exp-Golomb number, `ue(v)` (H.264, section 9.1), below 2³² - 1.
    pub(crate) fn ue(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
        }
        let rest = if zeros < 32 { self.u(zeros)? } else { return None };
        u32::try_from((1u64 << zeros) - 1 + u64::from(rest)).ok()
    }

    /// Reads a signed Exp-Golomb number, `se(v)`.
    fn se(&mut self) -> Option<i64> {
        let code = i64::from(self.ue()?);
        Some(if code % 2 == 1 { (code + 1) / 2 } else { -(code / 2) })
    }
}

/// Returns a NAL unit without its emulation prevention bytes (H.264, section 7.4.1.1). Limited to
/// 1,024 bytes, which contain all needed fields of any sane parameter set.
fn rbsp(nal: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(nal.len().min(1_024));
    let mut zeros = 0;
    for &byte in nal.iter().take(1_024) {
        if zeros >= 2 && byte == 3 {
            zeros = 0;
            continue;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        out.push(byte);
    }
    out
}

/// Fields of a sequence parameter set that containers repeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sps {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) chroma_format: u8,
    pub(crate) bit_depth_luma: u8,
    pub(crate) bit_depth_chroma: u8,
    /// H.265: `sps_max_sub_layers_minus1` + 1.
    pub(crate) temporal_layers: u8,
    /// H.265: `sps_temporal_id_nesting_flag`.
    pub(crate) temporal_id_nested: bool,
    /// H.265: the 12 bytes of general profile, tier and level.
    pub(crate) profile_tier_level: [u8; 12],
}

/// Returns the frame size: the coded size minus the cropping at both sides.
fn cropped(size: u32, first: u32, second: u32, unit: u32) -> Option<u32> {
    let cut = first.checked_add(second)?.checked_mul(unit)?;
    size.checked_sub(cut).filter(|size| (1..=0xffff).contains(size))
}

/// Returns the ID of an H.264 sequence or picture parameter set. `nal` includes the NAL unit
/// header.
pub(crate) fn h264_set_id(nal: &[u8]) -> Option<u32> {
    let rbsp = rbsp(nal);
    let mut bits = Bits::new(&rbsp);
    // Profile, constraints and level precede the ID of a sequence parameter set.
    let before = if nal.first()? & 0x1f == 7 { 32 } else { 8 };
    bits.skip(before)?;
    bits.ue()
}

/// Parses an H.264 sequence parameter set. `nal` includes the NAL unit header.
pub(crate) fn h264_sps(nal: &[u8]) -> Option<Sps> {
    let rbsp = rbsp(nal);
    let mut bits = Bits::new(&rbsp);
    bits.skip(8)?;
    let profile = bits.u(8)?;
    bits.skip(16)?;
    bits.ue()?;
    let (mut chroma, mut luma_depth, mut chroma_depth, mut separate) = (1, 0, 0, false);
    if [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135].contains(&profile) {
        chroma = bits.ue()?;
        if chroma == 3 {
            separate = bits.flag()?;
        }
        luma_depth = bits.ue()?;
        chroma_depth = bits.ue()?;
        bits.skip(1)?;
        if bits.flag()? {
            for list in 0..if chroma == 3 { 12 } else { 8 } {
                if bits.flag()? {
                    scaling_list(&mut bits, if list < 6 { 16 } else { 64 })?;
                }
            }
        }
    }
    bits.ue()?;
    match bits.ue()? {
        0 => {
            bits.ue()?;
        }
        1 => {
            bits.skip(1)?;
            bits.se()?;
            bits.se()?;
            for _ in 0..bits.ue().filter(|count| *count < 256)? {
                bits.se()?;
            }
        }
        _ => {}
    }
    bits.ue()?;
    bits.skip(1)?;
    let width = bits.ue()?.checked_add(1)?.checked_mul(16)?;
    let map_units = bits.ue()?.checked_add(1)?.checked_mul(16)?;
    let frame_mbs_only = bits.flag()?;
    if !frame_mbs_only {
        bits.skip(1)?;
    }
    let fields = if frame_mbs_only { 1 } else { 2 };
    let height = map_units.checked_mul(fields)?;
    bits.skip(1)?;
    let (mut left, mut right, mut top, mut bottom) = (0, 0, 0, 0);
    if bits.flag()? {
        (left, right, top, bottom) = (bits.ue()?, bits.ue()?, bits.ue()?, bits.ue()?);
    }
    let (unit_x, unit_y) = chroma_units(if separate { 0 } else { chroma });
    Some(Sps {
        width: cropped(width, left, right, unit_x)?,
        height: cropped(height, top, bottom, unit_y * fields)?,
        chroma_format: chroma.min(3) as u8,
        bit_depth_luma: 8 + luma_depth.min(6) as u8,
        bit_depth_chroma: 8 + chroma_depth.min(6) as u8,
        temporal_layers: 1,
        temporal_id_nested: false,
        profile_tier_level: [0; 12],
    })
}

/// Returns SubWidthC and SubHeightC: luma samples per chroma sample.
fn chroma_units(chroma_format: u32) -> (u32, u32) {
    match chroma_format {
        1 => (2, 2),
        2 => (2, 1),
        _ => (1, 1),
    }
}

fn scaling_list(bits: &mut Bits<'_>, size: usize) -> Option<()> {
    let (mut last, mut next) = (8, 8);
    for _ in 0..size {
        if next != 0 {
            next = (last + bits.se()?).rem_euclid(256);
        }
        if next != 0 {
            last = next;
        }
    }
    Some(())
}

/// Parses an H.265 sequence parameter set. `nal` includes the NAL unit header.
pub(crate) fn h265_sps(nal: &[u8]) -> Option<Sps> {
    let rbsp = rbsp(nal);
    let profile_tier_level = rbsp.get(3..15)?.try_into().ok()?;
    let mut bits = Bits::new(&rbsp);
    bits.skip(16 + 4)?;
    let sub_layers = bits.u(3)?;
    let nested = bits.flag()?;
    h265_skip_profiles(&mut bits, sub_layers)?;
    bits.ue()?;
    let chroma = bits.ue()?;
    let separate = chroma == 3 && bits.flag()?;
    let (width, height) = (bits.ue()?, bits.ue()?);
    let (mut left, mut right, mut top, mut bottom) = (0, 0, 0, 0);
    if bits.flag()? {
        (left, right, top, bottom) = (bits.ue()?, bits.ue()?, bits.ue()?, bits.ue()?);
    }
    let (luma_depth, chroma_depth) = (bits.ue()?, bits.ue()?);
    let (unit_x, unit_y) = chroma_units(if separate { 0 } else { chroma });
    Some(Sps {
        width: cropped(width, left, right, unit_x)?,
        height: cropped(height, top, bottom, unit_y)?,
        chroma_format: chroma.min(3) as u8,
        bit_depth_luma: 8 + luma_depth.min(7) as u8,
        bit_depth_chroma: 8 + chroma_depth.min(7) as u8,
        temporal_layers: sub_layers as u8 + 1,
        temporal_id_nested: nested,
        profile_tier_level,
    })
}

/// Returns the ID of an H.265 video, sequence or picture parameter set. `nal` includes the NAL unit
/// header.
pub(crate) fn h265_set_id(nal: &[u8]) -> Option<u32> {
    let rbsp = rbsp(nal);
    let mut bits = Bits::new(&rbsp);
    bits.skip(16)?;
    match nal.first()? >> 1 & 0x3f {
        32 => bits.u(4),
        33 => {
            bits.skip(4)?;
            let sub_layers = bits.u(3)?;
            bits.skip(1)?;
            h265_skip_profiles(&mut bits, sub_layers)?;
            bits.ue()
        }
        _ => bits.ue(),
    }
}

/// Skips `profile_tier_level` with this `sps_max_sub_layers_minus1` (section 7.3.3).
fn h265_skip_profiles(bits: &mut Bits<'_>, sub_layers: u32) -> Option<()> {
    bits.skip(96)?;
    let mut present = Vec::with_capacity(8);
    for _ in 0..sub_layers {
        present.push((bits.flag()?, bits.flag()?));
    }
    if sub_layers > 0 {
        bits.skip(2 * (8 - sub_layers as usize))?;
    }
    for (profile, level) in present {
        bits.skip(if profile { 88 } else { 0 } + if level { 8 } else { 0 })?;
    }
    Some(())
}

/// Returns width and height from the first AV1 sequence header among these OBUs.
pub(crate) fn av1_size(mut obus: &[u8]) -> Option<(u32, u32)> {
    loop {
        let header = *obus.first()?;
        let mut at = if header & 4 != 0 { 2 } else { 1 };
        let mut size = obus.len().checked_sub(at)?;
        if header & 2 != 0 {
            // leb128(), section 4.10.5
            size = 0;
            for byte in 0..5 {
                let bits = *obus.get(at)?;
                at += 1;
                size |= usize::from(bits & 0x7f) << (7 * byte);
                if bits & 0x80 == 0 {
                    break;
                }
            }
        }
        let obu = obus.get(at..at.checked_add(size)?)?;
        if header >> 3 & 15 == 1 {
            return av1_sequence_header(obu);
        }
        obus = &obus[at + size..];
    }
}

fn av1_sequence_header(obu: &[u8]) -> Option<(u32, u32)> {
    let mut bits = Bits::new(obu);
    bits.skip(3 + 1)?;
    if bits.flag()? {
        bits.skip(5)?;
    } else {
        let mut decoder_model = None;
        if bits.flag()? {
            bits.skip(64)?;
            if bits.flag()? {
                bits.ue()?;
            }
            if bits.flag()? {
                decoder_model = Some(bits.u(5)? as usize + 1);
                bits.skip(32 + 5 + 5)?;
            }
        }
        let initial_delay = bits.flag()?;
        for _ in 0..=bits.u(5)? {
            bits.skip(12)?;
            if bits.u(5)? > 7 {
                bits.skip(1)?;
            }
            if let Some(length) = decoder_model
                && bits.flag()?
            {
                bits.skip(2 * length + 1)?;
            }
            if initial_delay && bits.flag()? {
                bits.skip(4)?;
            }
        }
    }
    let (width_bits, height_bits) = (bits.u(4)? as usize + 1, bits.u(4)? as usize + 1);
    Some((bits.u(width_bits)? + 1, bits.u(height_bits)? + 1))
}
