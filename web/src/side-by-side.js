// Players of one stream side by side, each with its own origin (for example a lossy link per cohort), to compare
// freezes. `?stream=APP/NAME&buffer_ms=300&player=NAME=https://HOST:PORT&player=…`
import { milliseconds, number, rate, seconds } from './format.js';
import { draw, Minute } from './minute.js';
import { Playback } from './playback.js';
import { Backoff, viewerPass } from './target.js';
import { parseWall } from './wall.js';

const TICK_MS = 100;

const $ = (id) => document.getElementById(id);

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Requests a pass from `origin` until there is one, with the delays of a player, and reports failures. */
async function passFrom(origin, tell) {
  for (const backoff = new Backoff(); ;) {
    try {
      return await viewerPass(document, (path) => fetch(origin + path));
    } catch (error) {
      tell(`${origin} cannot be reached (${error.message}). Was this browser started with the printed command?`);
      await new Promise((done) => setTimeout(done, backoff.next()));
    }
  }
}

class Tile {
  #name;
  #section = $('player').content.firstElementChild.cloneNode(true);
  #playback = null;
  #minute = new Minute();
  #message = { text: '', button: '' };

  constructor({ name, origin }, { target, bufferMs }) {
    this.#name = name;
    this.#part('h2').textContent = name;
    const video = this.#part('video');
    video.setAttribute('aria-label', `Live video: ${name}`);
    // Set the property, because browsers ignore the attribute of a cloned element.
    video.muted = true;
    this.#part('.again').addEventListener('click', () => this.#playback?.begin());
    $('players').append(this.#section);
    const onMessage = (text = '', button = '') => { this.#message = { text, button }; };
    passFrom(origin, onMessage).then((viewer) => {
      this.#playback = new Playback(video, { target, origin, viewer, latency: bufferMs / 1000, onMessage });
      this.#playback.begin();
    });
  }

  /** Content of the beacon of this player. */
  beacon() {
    return { name: this.#name, ...this.#playback?.beacon() };
  }

  tick(now) {
    const playback = this.#playback;
    playback?.tick(now);
    const { freezes, freezeMs } = playback?.snapshot(now) ?? { freezes: 0, freezeMs: 0 };
    const state = playback?.state ?? 'starting';
    const isOn = state === 'playing' || state === 'frozen';
    const isFrozen = this.#minute.push(now, isOn, freezeMs) && playback.frozen;
    // Stalls too short for a freeze are not marked, so that mark, strip and number agree.
    const shown = isFrozen ? 'frozen' : isOn ? 'playing' : state;
    this.#section.dataset.state = shown;
    const { text, button } = this.#message;
    this.#part('.word').hidden = shown === 'playing';
    setText(this.#part('.word'), text ? `${shown}: ${text}` : shown);
    this.#part('.again').hidden = !button;
    setText(this.#part('.again'), button);
    setText(this.#part('.freezes'), number(freezes));
    setText(this.#part('dd.frozen'), seconds(freezeMs / 1000));
    setText(this.#part('.first'), milliseconds(playback?.firstFrameMs ?? null));
    setText(this.#part('.behind'), seconds(playback?.latency() ?? null));
    setText(this.#part('.received'), rate(playback?.receivedMbps() ?? null));
    const strip = this.#part('.strip');
    draw(strip, this.#minute.spans(now));
    strip.setAttribute('aria-label', `The last minute of ${this.#name}: ${number(freezes)} freezes so far`);
  }

  #part(selector) {
    return this.#section.querySelector(selector);
  }
}

try {
  const wall = parseWall(location.search);
  const { target, bufferMs, players } = wall;
  setText($('stream'), target.stream);
  setText($('what'), `${players.length} ${players.length > 1 ? 'players' : 'player'} with ${number(bufferMs)} ms of buffer, each through an origin of its own`);
  document.title = `${target.stream} side by side · Mendcast`;
  const tiles = players.map((player) => new Tile(player, wall));
  // For tests in a browser.
  Object.defineProperty(window, 'mendcast', { get: () => tiles.map((tile) => tile.beacon()) });
  setInterval(() => tiles.forEach((tile) => tile.tick(performance.now())), TICK_MS);
} catch (error) {
  $('fault').hidden = false;
  $('fault').textContent = error.message;
  $('note').hidden = true;
}
