//! What loss recovery asks of the streams: the data of its lost units.

use recovery::Content;
use units::Mark;

use super::Streams;
use super::range::StreamRange;
use super::send::SendStream;

impl Streams {
    fn sender(&self, range: &StreamRange) -> Option<&SendStream> {
        self.table.get(range.slot, range.id)?.send.as_deref()
    }
}

impl Content for Streams {
    type Piece = StreamRange;

    fn len(range: &StreamRange) -> u32 {
        range.len.into()
    }

    /// Lists the unacknowledged parts of the range. An unacknowledged FIN is on the last part,
    /// which may be empty. Reset or removed streams have none.
    fn missing(&self, range: &StreamRange, out: &mut Vec<StreamRange>) {
        let Some(send) = self.sender(range).filter(|send| send.reset.is_none()) else { return };
        let bytes = range.bytes();
        let mut fin = range.fin && send.is_fin_unacked();
        for gap in send.unacked(bytes.clone()) {
            let ends = fin && gap.end == bytes.end;
            fin &= !ends;
            let len = (gap.end - gap.start) as u16;
            out.push(StreamRange { offset: gap.start, len, fin: ends, ..*range });
        }
        if fin {
            out.push(StreamRange { offset: bytes.end, len: 0, ..*range });
        }
    }

    fn is_abandoned(&self, range: &StreamRange) -> bool {
        self.sender(range).is_some_and(|send| send.reset.is_some())
    }

    fn mark(&self, range: &StreamRange) -> Option<Mark> {
        self.sender(range)?.mark(range.offset)
    }

    fn detach(&mut self, range: &StreamRange) {
        let stream = self.table.get_mut(range.slot, range.id);
        if let Some(send) = stream.and_then(|stream| stream.send.as_mut()) {
            send.detach(range.bytes());
        }
    }
}
