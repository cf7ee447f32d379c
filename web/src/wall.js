// Reads the query of the page with players side by side.
import { parseTarget } from './target.js';

const MAX_PLAYERS = 8;
const BUFFER_MS = { least: 100, most: 10_000, usual: 800 };

/**
 * Reads `stream=APP/NAME` (default live/demo), `buffer_ms=N` (target delay of all players behind the live edge, 100 to
 * 10,000, default 800) and one to eight of `player=NAME=https://HOST:PORT`. Other parameters, such as a token, are added
 * to each media request. Throws a readable message that names the parameter.
 */
export function parseWall(search) {
  const query = new URLSearchParams(search);
  const bufferMs = Number(query.get('buffer_ms') ?? BUFFER_MS.usual);
  if (!(bufferMs >= BUFFER_MS.least && bufferMs <= BUFFER_MS.most)) {
    throw new Error(`buffer_ms is “${query.get('buffer_ms')}”: expected a number from ${BUFFER_MS.least} to ${BUFFER_MS.most}`);
  }
  const players = query.getAll('player').map(parsePlayer);
  if (players.length < 1 || players.length > MAX_PLAYERS) {
    throw new Error(`player occurs ${players.length} times: expected one to ${MAX_PLAYERS}, as in player=arq=https://127.0.0.1:5000`);
  }
  query.delete('buffer_ms');
  query.delete('player');
  const target = parseTarget(`?${query}`);
  if (target.protocol !== 'flv') throw new Error(`protocol is “${target.protocol}”: players side by side support flv only`);
  return { target, bufferMs, players };
}

function parsePlayer(text) {
  const at = text.indexOf('=');
  const [name, address] = [text.slice(0, Math.max(0, at)).trim(), text.slice(at + 1)];
  const url = URL.canParse(address) ? new URL(address) : null;
  // Reject anything but an origin instead of dropping the rest silently.
  if (!name || url?.protocol !== 'https:' || url.href !== `${url.origin}/`) {
    throw new Error(`player is “${text}”: expected a name and an https origin, as in arq=https://127.0.0.1:5000`);
  }
  return { name, origin: url.origin };
}
