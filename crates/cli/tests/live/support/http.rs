//! HTTP/1.1 (RFC 9112) as a client sees it on the wire: the end of a chunked body is told from a
//! connection that was cut off.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, Socket, Type};

use super::{PATIENCE, tls};

pub trait Io: Read + Write + Send {}

impl<T: Read + Write + Send> Io for T {}

/// A response with a body that is read piece by piece.
pub struct Answer {
    pub status: u16,
    /// Status line and fields.
    head: String,
    input: BufReader<Box<dyn Io>>,
    body: Body,
}

enum Body {
    /// Remaining bytes.
    Length(u64),
    Chunked,
    Over,
}

impl Answer {
    /// Sends a request without a body, for a path or for a URL of any host, and reads the
    /// response's head.
    pub fn of(io: Box<dyn Io>, method: &str, path: &str) -> io::Result<Self> {
        Self::to(io, method, path, b"")
    }

    /// Sends a request with this body and reads the response's head.
    pub fn to(io: Box<dyn Io>, method: &str, path: &str, body: &[u8]) -> io::Result<Self> {
        Self::with(io, method, path, "", body)
    }

    /// The same with further fields, each with its line end.
    fn with(
        io: Box<dyn Io>,
        method: &str,
        path: &str,
        fields: &str,
        body: &[u8],
    ) -> io::Result<Self> {
        let mut input = BufReader::new(io);
        let length = match body.len() {
            0 => String::new(),
            length => format!("content-length: {length}\r\n"),
        };
        let url = path.strip_prefix("https://").and_then(|rest| rest.split_once('/'));
        let (host, rest) = url.unwrap_or(("127.0.0.1", &path[1..]));
        let head = format!("{method} /{rest} HTTP/1.1\r\nhost: {host}\r\n{fields}{length}\r\n");
        input.get_mut().write_all(&[head.as_bytes(), body].concat())?;
        input.get_mut().flush()?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if input.read_line(&mut head)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or(ErrorKind::InvalidData)?;
        let mut answer = Self { status, head, input, body: Body::Over };
        if answer.field("transfer-encoding") == Some("chunked") {
            answer.body = Body::Chunked;
        } else if let Some(length) = answer.field("content-length") {
            answer.body = Body::Length(length.parse().map_err(|_| ErrorKind::InvalidData)?);
        }
        Ok(answer)
    }

    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (field, value) = line.split_once(": ")?;
            field.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// The next piece of the body; `None` where it ends in good form.
    pub fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let length = match &mut self.body {
            Body::Over => return Ok(None),
            Body::Length(left) => {
                let length = (*left).min(16_384);
                *left -= length;
                length as usize
            }
            Body::Chunked => {
                let mut line = String::new();
                self.input.read_line(&mut line)?;
                let length = usize::from_str_radix(line.trim_end(), 16);
                length.map_err(|_| ErrorKind::UnexpectedEof)?
            }
        };
        let mut piece = vec![0; length];
        self.input.read_exact(&mut piece)?;
        if matches!(self.body, Body::Chunked) {
            let mut end = [0; 2];
            self.input.read_exact(&mut end)?;
            if &end != b"\r\n" {
                return Err(ErrorKind::InvalidData.into());
            }
        }
        if length == 0 {
            self.body = Body::Over;
            return Ok(None);
        }
        Ok(Some(piece))
    }

    /// The whole body as text.
    pub fn text(mut self) -> String {
        let mut text = Vec::new();
        while let Some(piece) = self.next().expect("a whole body") {
            text.extend(piece);
        }
        String::from_utf8(text).expect("text")
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).expect("connected");
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    socket
}

/// A TLS connection on this socket.
pub fn secure<T: Read + Write>(socket: T) -> StreamOwned<ClientConnection, T> {
    let name = ServerName::try_from("localhost").expect("a name");
    let tls = ClientConnection::new(Arc::new(tls::client("http/1.1")), name).expect("TLS");
    StreamOwned::new(tls, socket)
}

/// The answer to a request over TLS.
pub fn request(address: SocketAddr, method: &str, path: &str) -> Answer {
    Answer::of(Box::new(secure(connect(address))), method, path).expect("an answer")
}

/// The answer to a POST over TLS.
pub fn post(address: SocketAddr, path: &str, body: &[u8]) -> Answer {
    Answer::to(Box::new(secure(connect(address))), "POST", path, body).expect("an answer")
}

/// The answer to a GET over TLS.
pub fn get(address: SocketAddr, path: &str) -> Answer {
    request(address, "GET", path)
}

/// The answer to a GET over TLS with a token in its header.
pub fn get_with_token(address: SocketAddr, path: &str, token: &str) -> Answer {
    let field = format!("authorization: Bearer {token}\r\n");
    let io = Box::new(secure(connect(address)));
    Answer::with(io, "GET", path, &field, b"").expect("an answer")
}

/// The answer to a GET over TLS from this address of loopback.
pub fn get_from(own: IpAddr, address: SocketAddr, path: &str) -> Answer {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::new(own, 0).into()).expect("bound");
    socket.connect(&address.into()).expect("connected");
    let socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    Answer::of(Box::new(secure(socket)), "GET", path).expect("an answer")
}

/// The answer to a GET without TLS.
pub fn get_plain(address: SocketAddr, path: &str) -> Answer {
    Answer::of(Box::new(connect(address)), "GET", path).expect("an answer")
}

/// The server's certificate, as a client over TCP sees it.
pub fn certificate(address: SocketAddr) -> Vec<u8> {
    let mut stream = secure(connect(address));
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).expect("a handshake");
    }
    stream.conn.peer_certificates().expect("the server has one")[0].to_vec()
}
