//! Fragmented MP4: `moov` identifies the video track, and `moof` lists offsets and sizes of its
//! samples (ISO/IEC 14496-12, sections 8.3, 8.4, 8.8). The answer is therefore known before `mdat`.

use super::input::{ChunkInput, FrameCount, Head, Reason};

/// Depth of `moof/traf`, `moov/trak/mdia` and the box inside.
const MAX_DEPTH: usize = 4;
/// Maximum number of tracks.
const MAX_TRACKS: usize = 16;

/// Flags of `tfhd` (section 8.8.7) and of `trun` (section 8.8.8).
const BASE_DATA_OFFSET: u32 = 0x1;
const SAMPLE_DESCRIPTION: u32 = 0x2;
const DEFAULT_DURATION: u32 = 0x8;
const DEFAULT_SIZE: u32 = 0x10;
const DATA_OFFSET: u32 = 0x1;
const FIRST_SAMPLE_FLAGS: u32 = 0x4;
const SAMPLE_DURATION: u32 = 0x100;
const SAMPLE_SIZE: u32 = 0x200;
const SAMPLE_FLAGS: u32 = 0x400;
const SAMPLE_COMPOSITION: u32 = 0x800;

/// Tracks of the initialization segment, which apply to the media segments after it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tracks {
    list: [Mp4Track; MAX_TRACKS],
    count: usize,
    /// Whether a `moov` was read.
    known: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mp4Track {
    id: u32,
    is_video: bool,
    default_size: u32,
}

impl Tracks {
    /// Returns the track with this ID, and creates it if needed.
    fn entry(&mut self, id: u32) -> Result<&mut Mp4Track, Reason> {
        let known = self.list[..self.count].iter().position(|track| track.id == id);
        let index = known.unwrap_or(self.count);
        if known.is_none() {
            *self.list.get_mut(index).ok_or(Reason::Room)? = Mp4Track { id, ..Mp4Track::default() };
            self.count += 1;
        }
        Ok(&mut self.list[index])
    }

    fn video(&self, id: u32) -> Option<Mp4Track> {
        self.list[..self.count].iter().find(|track| track.id == id && track.is_video).copied()
    }
}

#[derive(Debug)]
pub(super) struct Mp4 {
    skip: u64,
    state: Mp4State,
    head: Head<40>,
    /// Ends of the enclosing boxes.
    ends: [u64; MAX_DEPTH],
    depth: usize,
    is_first: bool,
    /// ID of the current `trak`.
    track: u32,
    /// Start of the latest `moof`.
    moof: Option<u64>,
    fragment: Fragment,
}

/// The current `traf`.
#[derive(Clone, Copy, Debug, Default)]
struct Fragment {
    is_video: bool,
    /// Base of data offsets.
    base: u64,
    /// Offset of the next sample's data.
    at: u64,
    default_size: u32,
}

#[derive(Clone, Copy, Debug)]
enum Mp4State {
    BoxHeader,
    /// The fields of this box, which ends at this offset.
    Fields(Leaf, u64),
    /// Entries of a `trun`: flags, remaining entries, and end of the box.
    Samples {
        flags: u32,
        left: u32,
        end: u64,
    },
}

/// Boxes with parsed fields.
#[derive(Clone, Copy, Debug)]
enum Leaf {
    Tkhd,
    Hdlr,
    Trex,
    Tfhd,
    Trun,
}

impl Mp4 {
    pub(super) fn new() -> Self {
        Self {
            skip: 0,
            state: Mp4State::BoxHeader,
            head: Head::EMPTY,
            ends: [0; MAX_DEPTH],
            depth: 0,
            is_first: true,
            track: 0,
            moof: None,
            fragment: Fragment::default(),
        }
    }

    /// Returns the end of the last counted frame.
    pub(super) fn read(
        &mut self,
        input: &mut ChunkInput<'_>,
        frames: &mut FrameCount,
        tracks: &mut Tracks,
    ) -> Result<Option<u64>, Reason> {
        loop {
            input.skip(&mut self.skip);
            if input.bytes.is_empty() {
                return Ok(None);
            }
            let found = match self.state {
                Mp4State::BoxHeader => {
                    let Some((name, start, end)) = self.box_header(input)? else {
                        return Ok(None);
                    };
                    self.enter(name, start, end, input.at, tracks)?;
                    None
                }
                Mp4State::Fields(leaf, end) => {
                    let need = self.fields_len(leaf);
                    if input.at + need.saturating_sub(self.head.get().len()) as u64 > end {
                        return Err(Reason::Malformed);
                    }
                    if !self.head.fill(input, need) {
                        return Ok(None);
                    }
                    // The first fields of some boxes determine which others follow.
                    if self.fields_len(leaf) > need {
                        continue;
                    }
                    self.skip = end - input.at;
                    self.state = Mp4State::BoxHeader;
                    self.fields(leaf, end, frames, tracks)?
                }
                Mp4State::Samples { .. } => match self.sample(input, frames)? {
                    SearchStep::Wait => return Ok(None),
                    SearchStep::Next => None,
                    SearchStep::Found(end) => Some(end),
                },
            };
            if let Some(end) = found {
                // Rejects data before its own index.
                return if end > input.at { Ok(Some(end)) } else { Err(Reason::Malformed) };
            }
        }
    }

    /// Returns name, start and end of the next box.
    fn box_header(
        &mut self,
        input: &mut ChunkInput<'_>,
    ) -> Result<Option<([u8; 4], u64, u64)>, Reason> {
        while self.depth > 0 && input.at >= self.ends[self.depth - 1] && self.head.get().is_empty()
        {
            self.depth -= 1;
        }
        if !self.head.fill(input, 8) {
            return Ok(None);
        }
        let mut size = u64::from(self.head.u32_at(0));
        if size == 1 {
            if !self.head.fill(input, 16) {
                return Ok(None);
            }
            size = self.head.u64_at(8);
        }
        let header = self.head.get().len() as u64;
        let start = input.at - header;
        let name = self.head.u32_at(4).to_be_bytes();
        self.head.clear();
        let parent_end = self.depth.checked_sub(1).map(|at| self.ends[at]);
        // Size 0 means up to the end of the file, which is unknown here.
        let end = match (size, parent_end) {
            (0, None) => Some(u64::MAX),
            _ => start.checked_add(size).filter(|end| *end >= input.at),
        };
        let end = end.filter(|end| parent_end.is_none_or(|parent| *end <= parent));
        Ok(Some((name, start, end.ok_or(self.unlike())?)))
    }

    /// Returns the reason for an invalid box.
    fn unlike(&self) -> Reason {
        if self.is_first { Reason::Format } else { Reason::Malformed }
    }

    fn enter(
        &mut self,
        name: [u8; 4],
        start: u64,
        end: u64,
        at: u64,
        tracks: &mut Tracks,
    ) -> Result<(), Reason> {
        let first =
            [*b"ftyp", *b"styp", *b"sidx", *b"moov", *b"moof", *b"emsg", *b"prft", *b"free"];
        if self.is_first && !first.contains(&name) {
            return Err(Reason::Format);
        }
        self.is_first = false;
        let parent = self.depth;
        let leaf = match (&name, parent) {
            (b"moov" | b"moof", 0) | (b"trak" | b"mvex" | b"traf", 1) | (b"mdia", 2) => {
                match &name {
                    b"moov" => *tracks = Tracks { known: true, ..Tracks::default() },
                    b"moof" if !tracks.known => return Err(Reason::NoInitialisation),
                    b"moof" => self.moof = Some(start),
                    b"traf" => self.fragment = Fragment::default(),
                    _ => {}
                }
                self.ends[parent] = end;
                self.depth += 1;
                return Ok(());
            }
            (b"mdat", 0) if self.moof.is_none() => return Err(Reason::NotFragmented),
            (b"tkhd", 2) => Leaf::Tkhd,
            (b"hdlr", 3) => Leaf::Hdlr,
            (b"trex", 2) => Leaf::Trex,
            (b"tfhd", 2) => Leaf::Tfhd,
            (b"trun", 2) if self.fragment.is_video => Leaf::Trun,
            _ => {
                self.skip = end - at;
                return Ok(());
            }
        };
        self.state = Mp4State::Fields(leaf, end);
        Ok(())
    }

    /// Returns the length of a box's fields, or a lower bound while bytes are missing.
    fn fields_len(&self, leaf: Leaf) -> usize {
        if self.head.get().len() < 4 {
            return 4;
        }
        let flags = self.head.u32_at(0) & 0xff_ffff;
        let has = |flag: u32, bytes: usize| if flags & flag != 0 { bytes } else { 0 };
        match leaf {
            // Version 1 has 64-bit times.
            Leaf::Tkhd if self.head.get()[0] == 1 => 24,
            Leaf::Tkhd => 16,
            Leaf::Hdlr => 12,
            Leaf::Trex => 20,
            Leaf::Tfhd => {
                let before = has(BASE_DATA_OFFSET, 8) + has(SAMPLE_DESCRIPTION, 4);
                8 + before + has(DEFAULT_DURATION, 4) + has(DEFAULT_SIZE, 4)
            }
            Leaf::Trun => 8 + has(DATA_OFFSET, 4) + has(FIRST_SAMPLE_FLAGS, 4),
        }
    }

    fn fields(
        &mut self,
        leaf: Leaf,
        end: u64,
        frames: &mut FrameCount,
        tracks: &mut Tracks,
    ) -> Result<Option<u64>, Reason> {
        let head = self.head;
        self.head.clear();
        let flags = head.u32_at(0) & 0xff_ffff;
        match leaf {
            Leaf::Tkhd => {
                self.track = head.u32_at(head.get().len() - 4);
                tracks.entry(self.track)?;
            }
            Leaf::Hdlr => {
                if head.get().ends_with(b"vide") {
                    tracks.entry(self.track)?.is_video = true;
                }
            }
            Leaf::Trex => tracks.entry(head.u32_at(4))?.default_size = head.u32_at(16),
            Leaf::Tfhd => {
                let moof = self.moof.ok_or(Reason::Malformed)?;
                let track = tracks.video(head.u32_at(4));
                let has_base = flags & BASE_DATA_OFFSET != 0;
                let base = if has_base { head.u64_at(8) } else { moof };
                let default_size = match flags & DEFAULT_SIZE {
                    0 => track.map_or(0, |track| track.default_size),
                    _ => head.u32_at(head.get().len() - 4),
                };
                let is_video = track.is_some();
                self.fragment = Fragment { is_video, base, at: base, default_size };
            }
            Leaf::Trun => return self.run(&head, flags, end, frames),
        }
        Ok(None)
    }

    /// Parses the fields of a `trun` before its entries.
    fn run(
        &mut self,
        head: &Head<40>,
        flags: u32,
        end: u64,
        frames: &mut FrameCount,
    ) -> Result<Option<u64>, Reason> {
        let count = head.u32_at(4);
        if flags & DATA_OFFSET != 0 {
            let offset = i64::from(head.u32_at(8).cast_signed());
            let base = self.fragment.base;
            self.fragment.at = base.checked_add_signed(offset).ok_or(Reason::Malformed)?;
        }
        if flags & SAMPLE_SIZE != 0 {
            self.skip = 0;
            self.state = Mp4State::Samples { flags, left: count, end };
            return Ok(None);
        }
        // All samples have the default size: entries are skipped, so a forged count costs nothing.
        let size = u64::from(self.fragment.default_size);
        if size == 0 {
            return Ok(None);
        }
        let counted = count.min(frames.0);
        frames.0 -= counted;
        let past = if frames.0 == 0 { counted } else { count };
        let run = size.checked_mul(past.into()).ok_or(Reason::Malformed)?;
        self.fragment.at = self.fragment.at.checked_add(run).ok_or(Reason::Malformed)?;
        Ok((frames.0 == 0).then_some(self.fragment.at))
    }

    /// Parses one entry of a `trun`.
    fn sample(
        &mut self,
        input: &mut ChunkInput<'_>,
        frames: &mut FrameCount,
    ) -> Result<SearchStep, Reason> {
        let Mp4State::Samples { flags, left, end } = self.state else {
            return Ok(SearchStep::Next);
        };
        if left == 0 {
            self.skip = end.checked_sub(input.at).ok_or(Reason::Malformed)?;
            self.state = Mp4State::BoxHeader;
            return Ok(SearchStep::Next);
        }
        let before = if flags & SAMPLE_DURATION != 0 { 4 } else { 0 };
        let behind = [SAMPLE_FLAGS, SAMPLE_COMPOSITION].map(|flag| (flags & flag != 0) as usize);
        if !self.head.fill(input, before + 4 + 4 * behind.iter().sum::<usize>()) {
            return Ok(SearchStep::Wait);
        }
        if input.at > end {
            return Err(Reason::Malformed);
        }
        let size = u64::from(self.head.u32_at(before));
        self.head.clear();
        self.state = Mp4State::Samples { flags, left: left - 1, end };
        self.fragment.at = self.fragment.at.checked_add(size).ok_or(Reason::Malformed)?;
        if size > 0 && frames.count() {
            return Ok(SearchStep::Found(self.fragment.at));
        }
        Ok(SearchStep::Next)
    }
}

enum SearchStep {
    Wait,
    Next,
    Found(u64),
}
