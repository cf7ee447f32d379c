//! MPEG transport streams: tables identify the video packets, and a PES packet with a timestamp
//! starts a frame (Rec. ITU-T H.222.0, sections 2.4.3 and 2.4.4; RFC 8216, section 3.2).
//!
//! Most muxers omit the length of video frames. Such a frame ends where the next one starts, so its
//! size is known with the first packet of the next frame or the end of the segment.

use media::ts::PACKET_LEN;

use super::input::{ChunkInput, FrameCount, Head, Reason};

const PAT_PID: u16 = 0;
const PACKET_HEADER_LEN: usize = 4;
/// Length of a PES header up to the length of its optional fields.
const PES_HEADER_LEN: usize = 9;
/// Table 2-34: MPEG-1, MPEG-2 and MPEG-4 part 2 video, H.264, H.265, VVC; H.264 under SAMPLE-AES.
const VIDEO: [u8; 7] = [0x01, 0x02, 0x10, 0x1b, 0x24, 0x33, 0xdb];

#[derive(Debug)]
pub(super) struct Ts {
    skip: u64,
    /// Bytes of the packet after the skipped ones.
    left: u64,
    state: TsState,
    head: Head<PES_HEADER_LEN>,
    /// Fields of the packet header.
    pid: u16,
    starts: bool,
    has_payload: bool,
    section: TableSection,
    pmt_pid: Option<u16>,
    video_pid: Option<u16>,
    /// Remaining bytes of the current video PES packet; `None` if its header has no length.
    pes_left: Option<u64>,
    /// End of the latest packet of the last counted frame.
    frame_end: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum TsState {
    Header,
    Adaptation,
    Payload,
    Pes,
    Table,
}

/// Result of parsing a transport stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// End of the last counted frame.
    End(u64),
    /// The program has no video.
    NoVideo,
}

impl Ts {
    pub(super) fn new() -> Self {
        Self {
            skip: 0,
            left: 0,
            state: TsState::Header,
            head: Head::EMPTY,
            pid: 0,
            starts: false,
            has_payload: false,
            section: TableSection::new(TableKind::Programs),
            pmt_pid: None,
            video_pid: None,
            pes_left: None,
            frame_end: None,
        }
    }

    /// Returns the end of the last counted frame if the body ends here.
    pub(super) fn end(&self) -> Option<u64> {
        self.frame_end
    }

    pub(super) fn read(
        &mut self,
        input: &mut ChunkInput<'_>,
        frames: &mut FrameCount,
    ) -> Result<Option<Found>, Reason> {
        loop {
            input.skip(&mut self.skip);
            if input.bytes.is_empty() {
                return Ok(None);
            }
            match self.state {
                TsState::Header => {
                    if !self.head.fill(input, PACKET_HEADER_LEN) {
                        return Ok(None);
                    }
                    self.packet_header()?;
                    self.head.clear();
                }
                TsState::Adaptation => {
                    let length = u64::from(input.take(1).bytes[0]);
                    self.left = self.left.checked_sub(1 + length).ok_or(Reason::Malformed)?;
                    self.skip = length;
                    self.state = TsState::Payload;
                }
                TsState::Payload => {
                    if let Some(end) = self.payload(input.at) {
                        return Ok(Some(Found::End(end)));
                    }
                }
                TsState::Pes => {
                    if !self.head.fill(input, PES_HEADER_LEN) {
                        return Ok(None);
                    }
                    let done = self.pes_header(input.at, frames)?;
                    self.head.clear();
                    if let Some(end) = done {
                        return Ok(Some(Found::End(end)));
                    }
                }
                TsState::Table => {
                    let mut piece = input.take(self.left);
                    self.left -= piece.bytes.len() as u64;
                    if self.left == 0 {
                        self.state = TsState::Header;
                    }
                    if self.table(&mut piece)? {
                        return Ok(Some(Found::NoVideo));
                    }
                }
            }
        }
    }

    fn packet_header(&mut self) -> Result<(), Reason> {
        let [sync, b1, b2, b3] = self.head.u32_at(0).to_be_bytes();
        if sync != 0x47 {
            return Err(Reason::Malformed);
        }
        self.pid = u16::from_be_bytes([b1, b2]) & 0x1fff;
        self.starts = b1 & 0x40 != 0;
        self.has_payload = b3 & 0x10 != 0;
        self.left = (PACKET_LEN - PACKET_HEADER_LEN) as u64;
        let is_video = self.video_pid == Some(self.pid);
        if is_video && b3 & 0xc0 != 0 {
            return Err(Reason::Encrypted);
        }
        let is_table = self.pid == PAT_PID || self.pmt_pid == Some(self.pid);
        // Skips packets with a transport error (b1) and packets of other streams.
        if b1 & 0x80 != 0 || !(is_video || is_table) {
            self.skip = self.left;
        } else {
            self.state = if b3 & 0x20 != 0 { TsState::Adaptation } else { TsState::Payload };
        }
        Ok(())
    }

    /// Processes the payload of a table or video packet, which starts at `at`. Returns the end of
    /// the last counted frame if this packet determines it.
    fn payload(&mut self, at: u64) -> Option<u64> {
        self.state = TsState::Header;
        self.skip = self.left;
        if !self.has_payload {
            return None;
        }
        if self.video_pid != Some(self.pid) {
            self.skip = 0;
            self.state = if self.left > 0 { TsState::Table } else { TsState::Header };
            if self.starts {
                let of = if self.pid == PAT_PID { TableKind::Programs } else { TableKind::Streams };
                self.section = TableSection::new(of);
            }
        } else if self.starts {
            self.skip = 0;
            self.state = TsState::Pes;
        } else if self.pes_left != Some(0) {
            self.video(at + self.left, self.left);
            return self.frame_end.filter(|_| self.pes_left == Some(0));
        }
        None
    }

    /// Counts `count` bytes of a video PES packet, in the transport packet that ends at `end`.
    fn video(&mut self, end: u64, count: u64) {
        self.pes_left = self.pes_left.map(|left| left.saturating_sub(count));
        if let Some(frame_end) = &mut self.frame_end {
            *frame_end = end;
        }
    }

    /// Processes the header of a video PES packet. The body continues at `at`.
    fn pes_header(&mut self, at: u64, frames: &mut FrameCount) -> Result<Option<u64>, Reason> {
        let head = self.head.get();
        // A header split between packets would need 175 bytes of stuffing, which no muxer writes.
        let behind = self.left.checked_sub(PES_HEADER_LEN as u64).ok_or(Reason::Unsupported)?;
        if head[..3] != [0, 0, 1] {
            return Err(Reason::Malformed);
        }
        // Without a timestamp, it continues the previous frame.
        if head[7] & 0x80 != 0 {
            if self.frame_end.is_some() {
                return Ok(self.frame_end);
            }
            if frames.count() {
                self.frame_end = Some(0);
            }
        }
        let length = u64::from(u16::from_be_bytes([head[4], head[5]]));
        self.pes_left = (length > 0).then_some(length + 6);
        self.video(at + behind, behind + PES_HEADER_LEN as u64);
        self.skip = behind;
        self.state = TsState::Header;
        Ok(self.frame_end.filter(|_| self.pes_left == Some(0)))
    }

    /// Reads part of a table. Returns true if the program has no video.
    fn table(&mut self, piece: &mut ChunkInput<'_>) -> Result<bool, Reason> {
        while let Some(entry) = self.section.read(piece)? {
            match entry {
                // Number 0 is the network table. Players use the first program.
                TableEntry::Program { number, pid } if number != 0 && self.pmt_pid.is_none() => {
                    self.pmt_pid = Some(pid);
                }
                TableEntry::Stream { kind, pid } if VIDEO.contains(&kind) => {
                    self.video_pid.get_or_insert(pid);
                }
                TableEntry::End if self.section.table == TableKind::Streams => {
                    return Ok(self.video_pid.is_none());
                }
                _ => {}
            }
        }
        Ok(false)
    }
}

/// Kind of table: programs (PAT), or streams of a program (PMT).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TableKind {
    Programs,
    Streams,
}

impl TableKind {
    /// Returns table_id, header length and entry length.
    const fn shape(self) -> (u8, usize, usize) {
        match self {
            Self::Programs => (0, 8, 4),
            Self::Streams => (2, 12, 5),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum TableEntry {
    Program { number: u16, pid: u16 },
    Stream { kind: u8, pid: u16 },
    End,
}

/// Streaming parser of one section of a table.
#[derive(Debug)]
struct TableSection {
    table: TableKind,
    stage: SectionStage,
    skip: u64,
    head: Head<12>,
    /// Remaining bytes of entries.
    left: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SectionStage {
    /// The number of bytes before the section.
    Pointer,
    Header,
    Entries,
    /// After the entries, or in a section of another table.
    Over,
}

impl TableSection {
    fn new(table: TableKind) -> Self {
        Self { table, stage: SectionStage::Pointer, skip: 0, head: Head::EMPTY, left: 0 }
    }

    fn read(&mut self, input: &mut ChunkInput<'_>) -> Result<Option<TableEntry>, Reason> {
        loop {
            input.skip(&mut self.skip);
            if input.bytes.is_empty() || self.stage == SectionStage::Over {
                return Ok(None);
            }
            if self.stage == SectionStage::Entries && self.left == 0 {
                self.stage = SectionStage::Over;
                return Ok(Some(TableEntry::End));
            }
            let (_, header_len, entry_len) = self.table.shape();
            let need = match self.stage {
                SectionStage::Pointer => 1,
                SectionStage::Header => header_len,
                _ => entry_len,
            };
            if !self.head.fill(input, need) {
                return Ok(None);
            }
            let entry = self.step()?;
            self.head.clear();
            if entry.is_some() {
                return Ok(entry);
            }
        }
    }

    /// Processes the bytes in `head`.
    fn step(&mut self) -> Result<Option<TableEntry>, Reason> {
        let head = self.head.get();
        let number = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let length = |at: usize| u64::from(number(at) & 0x0fff);
        let (table_id, header_len, entry_len) = self.table.shape();
        let (entry, used);
        match (self.stage, self.table) {
            (SectionStage::Pointer, _) => {
                self.skip = head[0].into();
                self.stage = SectionStage::Header;
                return Ok(None);
            }
            (SectionStage::Header, table) => {
                self.skip = if table == TableKind::Streams { length(10) } else { 0 };
                self.left = length(1);
                // The length covers the rest of this header, and 4 bytes of CRC.
                used = header_len as u64 - 3 + self.skip + 4;
                entry = None;
                self.stage =
                    if head[0] == table_id { SectionStage::Entries } else { SectionStage::Over };
            }
            (_, TableKind::Programs) => {
                used = entry_len as u64;
                entry = Some(TableEntry::Program { number: number(0), pid: number(2) & 0x1fff });
            }
            (_, TableKind::Streams) => {
                self.skip = length(3);
                used = entry_len as u64 + self.skip;
                entry = Some(TableEntry::Stream { kind: head[0], pid: number(1) & 0x1fff });
            }
        }
        self.left = match self.stage {
            SectionStage::Entries => self.left.checked_sub(used).ok_or(Reason::Malformed)?,
            _ => 0,
        };
        Ok(entry)
    }
}
