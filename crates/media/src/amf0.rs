//! AMF0, the encoding of RTMP commands and FLV script data.
//!
//! Adobe's Action Message Format AMF0 specification (2007), without types that live encoders do not
//! use: references, XML, typed objects, and the switch to AMF3. The cost of parsing is bounded by
//! the length of the input, [`MAX_DEPTH`] and [`MAX_VALUES`].

use bytes::{BufMut, BytesMut};

/// Maximum nesting depth of arrays and objects.
pub const MAX_DEPTH: usize = 16;
/// Maximum number of values in a message, including members of arrays and objects.
pub const MAX_VALUES: usize = 4_096;

const NUMBER: u8 = 0x00;
const BOOLEAN: u8 = 0x01;
const STRING: u8 = 0x02;
const OBJECT: u8 = 0x03;
const NULL: u8 = 0x05;
const UNDEFINED: u8 = 0x06;
const ECMA_ARRAY: u8 = 0x08;
const OBJECT_END: u8 = 0x09;
const STRICT_ARRAY: u8 = 0x0a;
const DATE: u8 = 0x0b;
const LONG_STRING: u8 = 0x0c;

/// An AMF0 value.
///
/// ```
/// use bytes::BytesMut;
/// use mendcast_media::amf0::{self, Value};
///
/// let mut out = BytesMut::new();
/// Value::String("onMetaData".into()).write(&mut out);
/// amf0::object([("width", Value::Number(1_280.0))]).write(&mut out);
///
/// let values = amf0::read(&out).unwrap();
/// assert_eq!(values[1].get("width").and_then(Value::number), Some(1_280.0));
/// ```
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// A double; AMF0 has no integers.
    Number(f64),
    /// A boolean.
    Boolean(bool),
    /// A short or long string. Invalid UTF-8 is replaced.
    String(String),
    /// An object, as an ordered list of members.
    Object(Vec<(String, Value)>),
    /// An array with named members.
    EcmaArray(Vec<(String, Value)>),
    /// An array.
    StrictArray(Vec<Value>),
    /// Null.
    Null,
    /// Undefined.
    Undefined,
    /// Milliseconds since 1970, in UTC. The time zone is reserved and 0.
    Date(f64),
}

impl Value {
    /// Returns the number, if the value is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the text, if the value is a string.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the member with this name, if the value is an object or named array that has one.
    pub fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Self::Object(members) | Self::EcmaArray(members) => {
                members.iter().find(|(key, _)| key == name).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// Appends the encoded value. Names are truncated to 65,535 bytes, the maximum in AMF0.
    pub fn write(&self, out: &mut BytesMut) {
        match self {
            Self::Number(number) => {
                out.put_u8(NUMBER);
                out.put_f64(*number);
            }
            Self::Boolean(value) => out.put_slice(&[BOOLEAN, u8::from(*value)]),
            Self::String(text) if text.len() <= usize::from(u16::MAX) => {
                out.put_u8(STRING);
                write_name(text, out);
            }
            Self::String(text) => {
                out.put_u8(LONG_STRING);
                out.put_u32(text.len() as u32);
                out.put_slice(text.as_bytes());
            }
            Self::Object(members) => {
                out.put_u8(OBJECT);
                write_members(members, out);
            }
            Self::EcmaArray(members) => {
                out.put_u8(ECMA_ARRAY);
                out.put_u32(members.len() as u32);
                write_members(members, out);
            }
            Self::StrictArray(values) => {
                out.put_u8(STRICT_ARRAY);
                out.put_u32(values.len() as u32);
                values.iter().for_each(|value| value.write(out));
            }
            Self::Null => out.put_u8(NULL),
            Self::Undefined => out.put_u8(UNDEFINED),
            Self::Date(time) => {
                out.put_u8(DATE);
                out.put_f64(*time);
                out.put_u16(0);
            }
        }
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

/// Returns an object with these members.
pub fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn write_name(name: &str, out: &mut BytesMut) {
    let bytes = &name.as_bytes()[..name.len().min(usize::from(u16::MAX))];
    out.put_u16(bytes.len() as u16);
    out.put_slice(bytes);
}

fn write_members(members: &[(String, Value)], out: &mut BytesMut) {
    for (name, value) in members {
        write_name(name, out);
        value.write(out);
    }
    out.put_slice(&[0, 0, OBJECT_END]);
}

/// Reason for which a value cannot be parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The input ends within a value.
    #[error("truncated AMF0 value")]
    Truncated,
    /// The type is not supported.
    #[error("AMF0 type {0} is not supported")]
    Unsupported(u8),
    /// Nesting exceeds [`MAX_DEPTH`] levels.
    #[error("AMF0 nested deeper than {MAX_DEPTH}")]
    TooDeep,
    /// More than [`MAX_VALUES`] values.
    #[error("more than {MAX_VALUES} AMF0 values")]
    TooMany,
}

/// Parses all values of a message.
///
/// # Errors
/// The input is not a sequence of values within the limits.
pub fn read(input: &[u8]) -> Result<Vec<Value>, Error> {
    let mut reader = Amf0Reader { input, values: 0 };
    let mut values = Vec::new();
    while !reader.input.is_empty() {
        values.push(reader.value(0)?);
    }
    Ok(values)
}

struct Amf0Reader<'a> {
    input: &'a [u8],
    values: usize,
}

impl<'a> Amf0Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.input.split_at_checked(len).ok_or(Error::Truncated)?;
        self.input = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.input.split_first_chunk().ok_or(Error::Truncated)?;
        self.input = rest;
        Ok(*taken)
    }

    fn text(&mut self, len: usize) -> Result<String, Error> {
        Ok(String::from_utf8_lossy(self.take(len)?).into_owned())
    }

    fn name(&mut self) -> Result<String, Error> {
        let len = u16::from_be_bytes(self.array()?);
        self.text(usize::from(len))
    }

    fn value(&mut self, depth: usize) -> Result<Value, Error> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(Error::TooMany);
        }
        if depth > MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        let [marker] = self.array()?;
        Ok(match marker {
            NUMBER => Value::Number(f64::from_be_bytes(self.array()?)),
            BOOLEAN => Value::Boolean(self.array::<1>()? != [0]),
            STRING => Value::String(self.name()?),
            LONG_STRING => {
                let len = u32::from_be_bytes(self.array()?);
                Value::String(self.text(len as usize)?)
            }
            OBJECT => Value::Object(self.members(depth)?),
            ECMA_ARRAY => {
                // The count is a hint, and some encoders send a wrong one.
                self.take(4)?;
                Value::EcmaArray(self.members(depth)?)
            }
            STRICT_ARRAY => {
                // The count is untrusted: do not reserve memory for it.
                let count = u32::from_be_bytes(self.array()?);
                let mut values = Vec::new();
                for _ in 0..count {
                    values.push(self.value(depth + 1)?);
                }
                Value::StrictArray(values)
            }
            NULL => Value::Null,
            UNDEFINED => Value::Undefined,
            DATE => {
                let time = f64::from_be_bytes(self.array()?);
                self.take(2)?;
                Value::Date(time)
            }
            marker => return Err(Error::Unsupported(marker)),
        })
    }

    fn members(&mut self, depth: usize) -> Result<Vec<(String, Value)>, Error> {
        let mut members = Vec::new();
        loop {
            if let Some(rest) = self.input.strip_prefix(&[0, 0, OBJECT_END]) {
                self.input = rest;
                return Ok(members);
            }
            let name = self.name()?;
            members.push((name, self.value(depth + 1)?));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(values: &[Value]) -> BytesMut {
        let mut out = BytesMut::new();
        values.iter().for_each(|value| value.write(&mut out));
        out
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<f64>()
                .prop_filter("NaN is not equal to itself", |n| !n.is_nan())
                .prop_map(Value::Number),
            any::<bool>().prop_map(Value::Boolean),
            ".{0,9}".prop_map(Value::String),
            Just(Value::Null),
            Just(Value::Undefined),
            (0.0..1e15).prop_map(Value::Date),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            let members = proptest::collection::vec((".{0,5}", inner.clone()), 0..5);
            prop_oneof![
                members.clone().prop_map(Value::Object),
                members.prop_map(Value::EcmaArray),
                proptest::collection::vec(inner, 0..5).prop_map(Value::StrictArray),
            ]
        })
    }

    #[test]
    fn values_are_encoded_as_specified() {
        let values = [
            Value::from("connect"),
            Value::from(1.0),
            object([("app", "live".into()), ("fpad", false.into())]),
            Value::Null,
        ];
        let expected = b"\x02\x00\x07connect\x00\x3f\xf0\0\0\0\0\0\0\
            \x03\x00\x03app\x02\x00\x04live\x00\x04fpad\x01\x00\x00\x00\x09\x05";
        assert_eq!(written(&values)[..], expected[..]);
        assert_eq!(read(expected), Ok(values.to_vec()));
        assert_eq!(values[2].get("app").and_then(Value::text), Some("live"));
    }

    #[test]
    fn long_strings_have_their_own_type() {
        let value = [Value::String("x".repeat(65_536))];
        assert_eq!(written(&value)[..5], [LONG_STRING, 0, 1, 0, 0]);
        assert_eq!(read(&written(&value)), Ok(value.to_vec()));
    }

    #[test]
    fn invalid_amf0_is_rejected() {
        assert_eq!(read(&[0x11, 1]), Err(Error::Unsupported(0x11)), "AMF3");
        assert_eq!(read(&[NUMBER, 1]), Err(Error::Truncated));
        assert_eq!(read(b"\x03\x00\x01a"), Err(Error::Truncated));
        assert_eq!(read(&[STRICT_ARRAY, 0xff, 0xff, 0xff, 0xff, NULL]), Err(Error::Truncated));
        assert_eq!(read(&[LONG_STRING, 0xff, 0xff, 0xff, 0xff]), Err(Error::Truncated));
    }

    #[test]
    fn nesting_and_numbers_have_limits() {
        let nested = |levels: usize| {
            let mut bytes = [STRICT_ARRAY, 0, 0, 0, 1].repeat(levels);
            bytes.push(NULL);
            read(&bytes)
        };
        assert!(nested(MAX_DEPTH).is_ok());
        assert_eq!(nested(MAX_DEPTH + 1), Err(Error::TooDeep));
        assert_eq!(nested(100_000), Err(Error::TooDeep));
        assert_eq!(read(&b"\x03\x00\x00".repeat(100_000)), Err(Error::TooDeep));
        assert!(read(&[NULL; MAX_VALUES]).is_ok());
        assert_eq!(read(&[NULL; MAX_VALUES + 1]), Err(Error::TooMany));
    }

    proptest! {
        #[test]
        fn values_round_trip(values in proptest::collection::vec(any_value(), 0..4)) {
            prop_assert_eq!(read(&written(&values)), Ok(values));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(0..16u8, 0..200)) {
            let _ = read(&bytes);
        }
    }
}
