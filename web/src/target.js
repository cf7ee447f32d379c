// The target of a player, and its behaviour after failures: media address, the viewer's pass, delays
// between attempts, and messages.

const PROTOCOLS = {
  flv: { name: 'HTTP-FLV', suffix: '.flv' },
  hls: { name: 'HLS', suffix: '/index.m3u8' },
};

/**
 * Reads the page's query: `stream=APP/NAME` (default live/demo), `protocol=flv|hls` (default flv).
 * Other parameters, such as a token, are added to each media request. Throws a readable message.
 */
export function parseTarget(search) {
  const query = new URLSearchParams(search);
  const stream = query.get('stream') ?? 'live/demo';
  const protocol = query.get('protocol') ?? 'flv';
  query.delete('stream');
  query.delete('protocol');
  query.delete('viewer');
  // Without empty and dotted segments the path cannot leave this origin or its directory.
  const segments = stream.split('/');
  if (segments.some((segment) => segment === '' || segment === '.' || segment === '..')) {
    throw new Error(`stream “${stream}” is invalid: expected APP/NAME, for example live/demo`);
  }
  if (!Object.hasOwn(PROTOCOLS, protocol)) {
    throw new Error(`protocol “${protocol}” is unknown: expected flv or hls`);
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

/** The viewer's pass. The server's own page contains it; other pages request one. */
export async function viewerPass(document, fetch) {
  const given = document.querySelector('meta[name=mendcast-viewer]')?.content;
  if (given) return given;
  const response = await fetch('/viewer');
  if (!response.ok) throw new Error(`the server issued no pass (HTTP ${response.status})`);
  return response.text();
}

/**
 * Delays between attempts in milliseconds. They double from 1 s to 30 s, with a random factor of 0.5
 * to 1, so that the viewers of a stream do not all return at once.
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
 * Failures by kind: the message, whether to retry automatically, and whether the stream is gone (so
 * that the viewer sees an end, not a freeze).
 */
const FAILURES = {
  ended: { away: true, retry: true, text: ({ stream }) => `The stream “${stream}” has ended.` },
  missing: { away: true, retry: true, text: ({ stream }) => `The stream “${stream}” is offline.` },
  refused: { away: true, retry: false, text: () => 'The server denies access to this stream.' },
  codec: { away: true, retry: false, text: () => 'This browser cannot decode the stream’s format.' },
  unsupported: { away: true, retry: false, text: ({ protocol }) => `This browser cannot play ${protocol}: it has no Media Source Extensions.` },
  busy: { away: false, retry: true, text: () => 'The server is at capacity.' },
  status: { away: false, retry: true, text: () => 'The server returned an error.' },
  silence: { away: false, retry: true, text: () => 'No data has arrived for a while.' },
  media: { away: false, retry: true, text: () => 'The stream could not be decoded.' },
  network: { away: false, retry: true, text: () => 'The server is unreachable, or the connection broke.' },
};

/** The kind of failure of an HTTP status. */
export function kindOfStatus(status) {
  if (status === 404 || status === 410) return 'missing';
  if (status === 401 || status === 403) return 'refused';
  if (status === 429 || status === 503) return 'busy';
  return 'status';
}

/** `{ text, retry, away }` of a failure. `detail` is the library's message. */
export function describeFailure(kind, target, detail = '') {
  const { text, retry, away } = FAILURES[kind];
  const words = text({ stream: target.stream, protocol: protocolName(target.protocol) });
  return { text: detail ? `${words} (${detail})` : words, retry, away };
}
