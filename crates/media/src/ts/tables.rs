//! Packet headers and program tables (Rec. ITU-T H.222.0, sections 2.4.3 and 2.4.4).

use super::{PAT_PID, crc_32, stream_type};
use crate::codec::Codec;

/// Maximum size of a section (section 2.4.4).
const MAX_SECTION: usize = 1_024;

/// A program: its video and audio streams, and its unsupported codecs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Program {
    pub(super) streams: [Option<(u16, Codec)>; 2],
    pub(super) unsupported: Vec<&'static str>,
}

/// A parsed packet.
pub(super) struct PacketHeader<'a> {
    pub(super) pid: u16,
    pub(super) start: bool,
    pub(super) scrambled: bool,
    pub(super) random_access: bool,
    /// Whether the continuity counter may jump.
    pub(super) discontinuity: bool,
    pub(super) counter: u8,
    pub(super) payload: &'a [u8],
}

impl<'a> PacketHeader<'a> {
    /// Parses a packet; `None` if it is marked as erroneous or has no payload.
    pub(super) fn read(packet: &'a [u8]) -> Option<Self> {
        if packet[1] & 0x80 != 0 || packet[3] & 0x10 == 0 {
            return None;
        }
        let (mut payload_at, mut flags) = (4, 0);
        if packet[3] & 0x20 != 0 {
            payload_at = 5 + usize::from(packet[4]);
            flags = if packet[4] > 0 { packet[5] } else { 0 };
        }
        Some(Self {
            pid: pid_at(packet, 1),
            start: packet[1] & 0x40 != 0,
            scrambled: packet[3] & 0xc0 != 0,
            random_access: flags & 0x40 != 0,
            discontinuity: flags & 0x80 != 0,
            counter: packet[3] & 15,
            payload: packet.get(payload_at..)?,
        })
    }
}

/// Parser of the tables.
#[derive(Default)]
pub(super) struct Tables {
    pmt_pid: Option<u16>,
    /// Partially received sections of PAT and PMT.
    sections: [Vec<u8>; 2],
}

impl Tables {
    /// Handles a packet. Returns the program if it is now complete.
    pub(super) fn packet(&mut self, header: &PacketHeader<'_>) -> Option<Program> {
        let index = match header.pid {
            PAT_PID => 0,
            pid if Some(pid) == self.pmt_pid => 1,
            _ => return None,
        };
        let section = &mut self.sections[index];
        let mut payload = header.payload;
        if header.start {
            section.clear();
            payload = payload.get(1 + usize::from(*payload.first()?)..)?;
        } else if section.is_empty() {
            return None;
        }
        section.extend_from_slice(&payload[..payload.len().min(MAX_SECTION - section.len())]);
        let head = section.get(..3)?;
        let length = usize::from(u16::from_be_bytes([head[1], head[2]]) & 0x0fff) + 3;
        if section.len() < length || length < 12 {
            return None;
        }
        let section = core::mem::take(section);
        let section = &section[..length];
        if crc_32(section) != 0 {
            return None;
        }
        let body = &section[8..length - 4];
        if index == 0 && section[0] == 0 {
            // The first program; number 0 is the network information table.
            let entry = body.as_chunks::<4>().0.iter().find(|entry| entry[..2] != [0, 0]);
            self.pmt_pid = entry.map(|entry| pid_at(entry, 2));
        }
        (index == 1 && section[0] == 2).then(|| Program::read(body))?
    }
}

impl Program {
    /// Parses a program map section.
    fn read(body: &[u8]) -> Option<Self> {
        let information = body.get(2..4)?;
        let length = u16::from_be_bytes([information[0], information[1]]) & 0x0fff;
        let mut at = 4 + usize::from(length);
        let mut program = Self::default();
        while let Some(entry) = body.get(at..at + 5) {
            let (index, codec) = match entry[0] {
                stream_type::AVC => (0, Codec::Avc),
                stream_type::HEVC => (0, Codec::Hevc),
                stream_type::ADTS => (1, Codec::Aac),
                stream_type::MPEG1_AUDIO | stream_type::MPEG2_AUDIO => (1, Codec::Mp3),
                _ => (2, Codec::Legacy(0)),
            };
            if let Some(slot @ None) = program.streams.get_mut(index) {
                *slot = Some((pid_at(entry, 1), codec));
            }
            let unsupported = stream_type::UNSUPPORTED.iter().find(|(kind, _)| *kind == entry[0]);
            program.unsupported.extend(unsupported.map(|(_, name)| *name));
            at += 5 + usize::from(u16::from_be_bytes([entry[3], entry[4]]) & 0x0fff);
        }
        Some(program)
    }
}

fn pid_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]]) & 0x1fff
}
