// What the players play and how it goes on after a failure: the address of the media from the
// page's own address, the viewer's pass, the waits between attempts, the words for each failure.

const PROTOCOLS = {
  flv: { name: 'HTTP-FLV', suffix: '.flv' },
  hls: { name: 'HLS', suffix: '/index.m3u8' },
};

/**
 * Reads the page's query: `stream=APP/NAME` (default live/demo), `protocol=flv|hls` (default flv).
 * Other parameters, such as a token, go along with each media request. Throws a message for people.
 */
export function parseTarget(search) {
  const query = new URLSearchParams(search);
  const stream = query.get('stream') ?? 'live/demo';
  const protocol = query.get('protocol') ?? 'flv';
  query.delete('stream');
  query.delete('protocol');
  query.delete('viewer');
  // Without empty and dotted segments the path cannot leave this origin or climb out of its place.
  const segments = stream.split('/');
  if (segments.some((segment) => segment === '' || segment === '.' || segment === '..')) {
    throw new Error(`stream is “${stream}”, which is not the name of a stream: expected something like live/demo`);
  }
  if (!Object.hasOwn(PROTOCOLS, protocol)) {
    throw new Error(`protocol is “${protocol}”, which is not a protocol of this page: expected flv or hls`);
  }
  return { stream, protocol, query };
}

export const protocolName = (protocol) => PROTOCOLS[protocol].name;

/** The address of the media: `/live/demo.flv?viewer=PASS` or `/live/demo/index.m3u8?viewer=PASS`. */
export function mediaUrl({ stream, protocol, query }, viewer) {
  const path = stream.split('/').map(encodeURIComponent).join('/');
  const all = new URLSearchParams(query);
  all.set('viewer', viewer);
  return `/${path}${PROTOCOLS[protocol].suffix}?${all}`;
}

/** The viewer's pass: the server has put it into the page; a page from elsewhere asks for one. */
export async function viewerPass(document, fetch) {
  const given = document.querySelector('meta[name=mendcast-viewer]')?.content;
  if (given) return given;
  const response = await fetch('/viewer');
  if (!response.ok) throw new Error(`the server gives no pass (HTTP ${response.status})`);
  return response.text();
}

/**
 * Waits between attempts, in milliseconds: doubling from one second to thirty, each between half and
 * the whole of that, so that the viewers of one stream do not all come back in the same moment.
 */
export class Backoff {
  #attempts = 0;
  #random;

  constructor(random = Math.random) {
    this.#random = random;
  }

  next() {
    const whole = Math.min(30_000, 1000 * 2 ** this.#attempts);
    this.#attempts = Math.min(this.#attempts + 1, 5);
    return Math.round(whole * (0.5 + 0.5 * this.#random()));
  }

  reset() {
    this.#attempts = 0;
  }
}

/**
 * Failures by kind: the message, whether trying again by itself makes sense, and whether the stream
 * is then away (the viewer sees an end, not a freeze).
 */
const FAILURES = {
  ended: { away: true, retry: true, text: ({ stream }) => `The stream “${stream}” has ended.` },
  missing: { away: true, retry: true, text: ({ stream }) => `There is no stream “${stream}” at the moment.` },
  refused: { away: true, retry: false, text: () => 'The server refuses this stream to this viewer.' },
  codec: { away: true, retry: false, text: () => 'This browser cannot decode the stream’s format.' },
  unsupported: { away: true, retry: false, text: ({ protocol }) => `This browser cannot play ${protocol}: it has no Media Source Extensions.` },
  busy: { away: false, retry: true, text: () => 'The server is at its limit.' },
  status: { away: false, retry: true, text: () => 'The server answered with an error.' },
  silence: { away: false, retry: true, text: () => 'Nothing has arrived for a while.' },
  media: { away: false, retry: true, text: () => 'The stream could not be decoded.' },
  network: { away: false, retry: true, text: () => 'The server cannot be reached, or the connection broke.' },
};

/** The kind of failure that an HTTP status means. */
export function kindOfStatus(status) {
  if (status === 404 || status === 410) return 'missing';
  if (status === 401 || status === 403) return 'refused';
  if (status === 429 || status === 503) return 'busy';
  return 'status';
}

/** `{ text, retry, away }` of a failure; `target` names the stream, `detail` is the library's word. */
export function describeFailure(kind, target, detail = '') {
  const { text, retry, away } = FAILURES[kind];
  const words = text({ stream: target.stream, protocol: protocolName(target.protocol) });
  return { text: detail ? `${words} (${detail})` : words, retry, away };
}
