//! File content as a body, which a pool reads one chunk ahead of the transport.

use core::pin::Pin;
use core::task::{Context, Poll, ready};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::pool::Pool;

/// Bytes per read. A slow viewer costs this much memory, besides its transport's buffers.
const CHUNK_SIZE: usize = 64 * 1024;

/// A part of a file.
#[derive(Debug)]
pub struct FileBody {
    file: Arc<File>,
    /// Offset of the next read.
    offset: u64,
    /// Bytes to read.
    unread: u64,
    /// Bytes to hand out.
    remaining: u64,
    /// Chunk being read.
    next: Option<oneshot::Receiver<io::Result<Bytes>>>,
    pool: Arc<Pool>,
}

impl FileBody {
    /// Creates a body of `length` bytes from `offset`.
    pub(crate) fn new(file: File, offset: u64, length: u64, pool: Arc<Pool>) -> Self {
        let file = Arc::new(file);
        Self { file, offset, unread: length, remaining: length, next: None, pool }
    }

    /// Returns the number of bytes not yet handed out.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Starts reading the next chunk, if any.
    fn start_read(&mut self) {
        let size = usize::try_from(self.unread).unwrap_or(usize::MAX).min(CHUNK_SIZE);
        if size == 0 {
            return;
        }
        let (file, offset) = (self.file.clone(), self.offset);
        self.offset += size as u64;
        self.unread -= size as u64;
        self.next = Some(self.pool.run(move || {
            let mut chunk = vec![0; size];
            file.read_exact_at(&mut chunk, offset)?;
            Ok(chunk.into())
        }));
    }

    /// Returns the next chunk, or `None` at the end.
    ///
    /// # Errors
    /// If the file cannot be read or has become shorter.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if self.next.is_none() {
            self.start_read();
        }
        let Some(next) = &mut self.next else { return Poll::Ready(Ok(None)) };
        let chunk = ready!(Pin::new(next).poll(context));
        self.next = None;
        let chunk = chunk.map_err(io::Error::other)??;
        self.remaining -= chunk.len() as u64;
        self.start_read();
        Poll::Ready(Ok(Some(chunk)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::pool::tests::blocked_pool;
    use std::io::Write as _;
    use std::sync::mpsc::{Sender, channel};
    use std::task::{Wake, Waker};
    use std::time::Duration;

    struct Bell(Sender<()>);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.send(()).expect("a receiver");
        }
    }

    #[test]
    fn a_slow_disk_blocks_nobody_and_wakes_the_task() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[7; 100_000]).expect("written");
        let (pool, release) = blocked_pool();
        let mut body = FileBody::new(file, 0, 100_000, Arc::new(pool));
        let (sender, rung) = channel();
        let waker = Waker::from(Arc::new(Bell(sender)));
        let mut context = Context::from_waker(&waker);
        assert!(body.poll_next(&mut context).is_pending());
        assert!(rung.try_recv().is_err());
        drop(release);
        let mut read = 0;
        loop {
            match body.poll_next(&mut context) {
                Poll::Pending => rung.recv_timeout(Duration::from_secs(10)).expect("woken"),
                Poll::Ready(Ok(Some(chunk))) => {
                    assert!(chunk.iter().all(|byte| *byte == 7));
                    read += chunk.len();
                    assert_eq!(body.remaining(), 100_000 - read as u64);
                }
                Poll::Ready(Ok(None)) => break,
                Poll::Ready(Err(e)) => panic!("{e}"),
            }
        }
        assert_eq!(read, 100_000);
    }
}
