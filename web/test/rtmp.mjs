// A publisher over RTMP that sends any tag at any time, unlike an encoder. It implements the parts of
// Adobe's RTMP specification 1.0 needed to publish: sections 5 (handshake, chunks) and 7.2 (commands).
import { once } from 'node:events';
import net from 'node:net';
import { AUDIO, SCRIPT, VIDEO } from './flv.mjs';
import { wait } from './programs.mjs';

const HANDSHAKE = 1536;
const CHUNK = 60_000;
const [SET_CHUNK_SIZE, COMMAND] = [1, 20];
/** The chunk stream of each kind of message, separate for commands and media. */
const CHUNK_STREAMS = { [SET_CHUNK_SIZE]: 2, [COMMAND]: 3, [AUDIO]: 4, [VIDEO]: 5, [SCRIPT]: 6 };
/** The message stream of a server's first createStream. */
const MESSAGE_STREAM = 1;

const text = (string) => Buffer.concat([Buffer.from([string.length >> 8, string.length & 255]), Buffer.from(string)]);

/** Encodes a value in AMF0: number, string, null, or an object of these. */
function amf(value) {
  if (value === null) return Buffer.from([5]);
  if (typeof value === 'string') return Buffer.concat([Buffer.from([2]), text(value)]);
  if (typeof value === 'number') {
    const bytes = Buffer.alloc(9);
    bytes.writeDoubleBE(value, 1);
    return bytes;
  }
  const members = Object.entries(value).flatMap(([key, member]) => [text(key), amf(member)]);
  return Buffer.concat([Buffer.from([3]), ...members, Buffer.from([0, 0, 9])]);
}

/** Splits a message into chunks, the first with a full header. */
function chunks(type, time, stream, payload) {
  const id = CHUNK_STREAMS[type];
  const extended = time >= 0xff_ffff ? Buffer.from([time >>> 24, time >> 16 & 255, time >> 8 & 255, time & 255]) : Buffer.alloc(0);
  const head = Buffer.alloc(12);
  head[0] = id;
  head.writeUIntBE(Math.min(time, 0xff_ffff), 1, 3);
  head.writeUIntBE(payload.length, 4, 3);
  head[7] = type;
  head.writeUInt32LE(stream, 8);
  const pieces = [head, extended, payload.subarray(0, CHUNK)];
  for (let at = CHUNK; at < payload.length; at += CHUNK) pieces.push(Buffer.from([0xc0 | id]), extended, payload.subarray(at, at + CHUNK));
  return Buffer.concat(pieces);
}

/** Publishes `app/name?query`: `{ send(tag), gone, close() }`; `gone` resolves when the connection has ended. */
export async function openPublisher(port, stream) {
  const socket = net.connect(port, '127.0.0.1');
  let heard = Buffer.alloc(0);
  socket.on('data', (bytes) => { heard = Buffer.concat([heard, bytes]).subarray(-8192); });
  socket.on('error', () => {});
  const gone = new Promise((done) => socket.once('close', done));
  let closed = false;
  gone.then(() => { closed = true; });
  const hears = async (what) => {
    for (const end = Date.now() + 10_000; !what(); await wait(5)) if (closed || Date.now() > end) throw new Error(`${stream}: the server said ${heard.toString('latin1')}`);
  };
  await once(socket, 'connect');

  const [app, name] = [stream.slice(0, stream.indexOf('/')), stream.slice(stream.indexOf('/') + 1)];
  socket.write(Buffer.concat([Buffer.from([3]), Buffer.alloc(HANDSHAKE, 7)]));
  await hears(() => heard.length > 2 * HANDSHAKE);
  socket.write(heard.subarray(1, 1 + HANDSHAKE));
  const size = Buffer.alloc(4);
  size.writeUInt32BE(CHUNK);
  socket.write(chunks(SET_CHUNK_SIZE, 0, 0, size));
  const command = (on, ...values) => socket.write(chunks(COMMAND, 0, on, Buffer.concat(values.map(amf))));
  command(0, 'connect', 1, { app, tcUrl: `rtmp://127.0.0.1:${port}/${app}` });
  await hears(() => heard.includes('NetConnection.Connect.Success'));
  command(0, 'createStream', 2, null);
  command(MESSAGE_STREAM, 'publish', 3, null, name, 'live');
  await hears(() => heard.includes('NetStream.Publish.Start'));

  return {
    gone,
    send({ kind, time, payload }) {
      if (!closed) socket.write(chunks(kind, time >>> 0, MESSAGE_STREAM, payload));
    },
    async close() {
      socket.end();
      await Promise.race([gone, wait(2_000)]);
      socket.destroy();
    },
  };
}

/**
 * Publishes a clip in a loop in real time, from time 0. Fields of the result may be changed and apply from the
 * next tag: `camera`, whether pictures are sent (they resume with a key frame); `audioAhead`, the milliseconds by
 * which audio is sent early. `add(clip, rewrite)` sends a further clip at the same time, with each tag replaced by
 * `rewrite(tag)`.
 */
export async function goLive(port, stream, clip, rewrite = (tag) => tag) {
  const connection = await openPublisher(port, stream);
  const live = { camera: true, audioAhead: 0, gone: connection.gone };
  const feeds = [];
  live.add = (more, change) => {
    feeds.push(new Feed(more, Date.now(), (tag) => connection.send(change(tag))));
  };
  live.add(clip, rewrite);
  const timer = setInterval(() => feeds.forEach((feed) => feed.send(live)), 10);
  live.close = () => {
    clearInterval(timer);
    return connection.close();
  };
  return live;
}

/** A clip in progress. */
class Feed {
  #clip;
  #began;
  #give;
  /** The number of the next frame of each kind. */
  #next = { [AUDIO]: 0, [VIDEO]: 0 };
  #awaitsKey = false;

  constructor(clip, began, give) {
    this.#clip = clip;
    this.#began = began;
    this.#give = give;
    clip.headers.forEach(give);
  }

  send({ camera, audioAhead }) {
    const now = Date.now() - this.#began;
    for (const tag of this.#due(AUDIO, now + audioAhead)) this.#give(tag);
    for (const tag of this.#due(VIDEO, now)) {
      this.#awaitsKey = !camera || this.#awaitsKey && !tag.key;
      if (!this.#awaitsKey) this.#give(tag);
    }
  }

  /** The frames of a kind due until `now`. */
  * #due(kind, now) {
    const frames = this.#clip[kind];
    for (;;) {
      const tag = frames[this.#next[kind] % frames.length];
      const time = tag.time + Math.floor(this.#next[kind] / frames.length) * this.#clip.length;
      if (time > now) return;
      this.#next[kind] += 1;
      yield { ...tag, time };
    }
  }
}
