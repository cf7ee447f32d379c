// Clips as FLV tags, encoded with ffmpeg. Enhanced RTMP (Veovera) is written here, because not every ffmpeg supports it:
// AV1, Opus, and multitrack packets.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

export const [AUDIO, VIDEO, SCRIPT] = [8, 9, 18];
const SECONDS = 8;

/** The tags of an FLV file: `{ kind, time, payload }`, times in milliseconds. */
function readFlv(file) {
  const tags = [];
  for (let at = file.readUInt32BE(5) + 4; at + 11 <= file.length;) {
    const size = file.readUIntBE(at + 1, 3);
    tags.push({ kind: file[at] & 31, time: file.readUIntBE(at + 4, 3) | file[at + 7] << 24, payload: file.subarray(at + 11, at + 11 + size) });
    at += 11 + size + 4;
  }
  return tags;
}

/** The frames of an IVF file: 32 bytes of header, then 12 before each. */
function readIvf(file) {
  const frames = [];
  for (let at = 32; at + 12 <= file.length;) {
    const size = file.readUInt32LE(at);
    frames.push(file.subarray(at + 12, at + 12 + size));
    at += 12 + size;
  }
  return frames;
}

/** The packets of an Ogg file with one stream: RFC 3533, section 6. */
function readOgg(file) {
  const packets = [];
  let begun = [];
  for (let at = 0; at + 27 <= file.length;) {
    const sizes = file.subarray(at + 27, at + 27 + file[at + 26]);
    at += 27 + sizes.length;
    for (const size of sizes) {
      begun.push(file.subarray(at, at + size));
      at += size;
      if (size < 255) {
        packets.push(Buffer.concat(begun));
        begun = [];
      }
    }
  }
  return packets;
}

/** The content of the first box with a name in an MP4 file. */
function box(file, name) {
  const at = file.indexOf(name) - 4;
  return file.subarray(at + 8, at + file.readUInt32BE(at));
}

const ffmpeg = (args) => execFileSync('ffmpeg', ['-v', 'error', '-y', ...args], { stdio: ['ignore', 'ignore', 'pipe'] });
const picture = (source) => ['-f', 'lavfi', '-t', SECONDS, '-i', source];

const [HEADER, FRAME] = [0, 1];

/**
 * The tags of H.264 and AAC as a clip: `{ headers, length }` and the frames of each kind, with `key` for key
 * frames. Frames that the encoder adds at the end are dropped, because they would overlap with the next round.
 */
function clip(tags) {
  const frames = (wanted) => tags
    .filter(({ kind, time, payload }) => kind === wanted && payload[1] === FRAME && time < SECONDS * 1000)
    .map((tag) => ({ ...tag, key: tag.payload[0] === 0x17 }));
  return { headers: tags.filter(({ kind, payload }) => kind !== SCRIPT && payload[1] === HEADER), [AUDIO]: frames(AUDIO), [VIDEO]: frames(VIDEO), length: SECONDS * 1000 };
}

/** A clip of H.264 and AAC with a key frame every second. */
export function h264Clip(folder, { size, rate = 25, tone, sampleRate, channels, bFrames = 0 }) {
  const file = join(folder, `${size}.flv`);
  ffmpeg([
    ...picture(`testsrc2=size=${size}:rate=${rate}`), ...picture(`sine=frequency=${tone}:sample_rate=${sampleRate}`),
    '-c:v', 'libx264', '-preset', 'veryfast', '-pix_fmt', 'yuv420p', '-g', rate, '-keyint_min', rate, '-sc_threshold', 0, '-bf', bFrames, '-b:v', '300k',
    '-c:a', 'aac', '-b:a', '64k', '-ar', sampleRate, '-ac', channels, '-flvflags', 'no_duration_filesize', file,
  ]);
  return clip(readFlv(readFileSync(file)));
}

/** A clip of AV1 and Opus in Enhanced RTMP, with a key frame every second and frames in decoding order, as sent by live encoders. */
export function av1Clip(folder, { size, tone }) {
  const [mp4, ivf, ogg] = ['av1.mp4', 'av1.ivf', 'opus.ogg'].map((name) => join(folder, name));
  ffmpeg([...picture(`testsrc2=size=${size}:rate=25`), '-pix_fmt', 'yuv420p', '-c:v', 'libaom-av1', '-usage', 'realtime', '-cpu-used', 8, '-lag-in-frames', 0, '-g', 25, '-keyint_min', 25, '-b:v', '300k', mp4]);
  ffmpeg(['-i', mp4, '-c', 'copy', ivf]);
  ffmpeg([...picture(`sine=frequency=${tone}:sample_rate=48000`), '-ac', 2, '-c:a', 'libopus', '-b:a', '64k', '-frame_duration', 20, ogg]);
  const packet = (first, codec, data) => Buffer.concat([Buffer.from([first]), Buffer.from(codec), data]);
  const [head, , ...sound] = readOgg(readFileSync(ogg));
  const frames = readIvf(readFileSync(ivf)).map((data, number) => {
    // After the temporal delimiter, a key frame has a sequence header: AV1, sections 5.3.2 and 6.2.2.
    const key = data[2] >> 3 === 1;
    return { kind: VIDEO, time: number * 40, key, payload: packet(key ? 0x91 : 0xa1, 'av01', data) };
  });
  return {
    headers: [
      { kind: VIDEO, time: 0, payload: packet(0x90, 'av01', box(readFileSync(mp4), 'av1C')) },
      { kind: AUDIO, time: 0, payload: packet(0x90, 'Opus', head) },
    ],
    [AUDIO]: sound.slice(0, SECONDS * 50).map((data, number) => ({ kind: AUDIO, time: number * 20, payload: packet(0x91, 'Opus', data) })),
    [VIDEO]: frames,
    length: SECONDS * 1000,
  };
}

/** A tag of H.264 or AAC in Enhanced RTMP, as a packet with the multitrack header `form`, followed by `body(data)`. */
function multitrack(tag, form, body) {
  const { kind, payload } = tag;
  const [first, codec] = kind === AUDIO ? [0x95, 'mp4a'] : [0x80 | payload[0] & 0x70 | 6, 'avc1'];
  return { ...tag, payload: Buffer.concat([Buffer.from([first, form << 4 | payload[1]]), Buffer.from(codec), body(data(tag))]) };
}

/** The part after the FourCC. Only frames of H.264 have a composition time. */
const data = ({ kind, payload }) => payload.subarray(kind === VIDEO && payload[1] === HEADER ? 5 : 2);

const [ONE_TRACK, MANY_TRACKS] = [0, 1];

/** A tag of H.264 or AAC as a tag of a track. */
export const asTrack = (tag, track) => multitrack(tag, ONE_TRACK, (bytes) => Buffer.concat([Buffer.from([track]), bytes]));

/** A packet with two tracks: `other` as number 1, then `tag` as the default one. */
export const asManyTracks = (tag, other) => multitrack(tag, MANY_TRACKS, (bytes) => {
  const track = (number, content) => Buffer.concat([Buffer.from([number, content.length >> 16, content.length >> 8 & 255, content.length & 255]), content]);
  return Buffer.concat([track(1, data(other)), track(0, bytes)]);
});
