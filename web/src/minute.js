// The last minute of a player as a strip of played and frozen spans. They follow the sums of `FreezeCounter`, so the strip
// shows exactly the counted freezes.

/** Duration of the strip in milliseconds. */
export const WINDOW_MS = 60_000;
/** Size of the strip, and height of each state, in SVG units. */
const [WIDTH, HEIGHT] = [1000, 20];
const HEIGHTS = { off: 2, playing: 5, frozen: HEIGHT };

export class Minute {
  #spans = [];
  #at = null;
  #frozenMs = 0;

  /**
   * Adds an observation at `now`: whether there is a picture, and the total frozen time in milliseconds. Times must
   * increase. Returns whether the picture was frozen since the previous observation.
   */
  push(now, isOn, frozenMs) {
    const since = this.#at ?? now;
    const grown = frozenMs - this.#frozenMs;
    const last = this.#spans.at(-1);
    // A known freeze continues, and may have ended since. A new freeze is back-dated, because a stall counts as one
    // only after a while.
    const goesOn = last?.state === 'frozen' && last.to === since;
    const end = goesOn ? Math.min(now, since + grown) : now;
    this.#paint(isOn ? 'playing' : 'off', since, now);
    if (grown > 0) {
      this.#paint('frozen', end - grown, end);
      this.#paint(isOn ? 'playing' : 'off', end, now);
    }
    this.#at = now;
    this.#frozenMs = frozenMs;
    this.#spans = this.#spans.filter(({ to }) => to > now - WINDOW_MS);
    return grown > 0;
  }

  /** The spans until `now`, oldest first: `{ state, from, to }`, with positions from 0 to 1. */
  spans(now) {
    const place = (time) => Math.min(1, Math.max(0, 1 - (now - time) / WINDOW_MS));
    return this.#spans.map(({ state, from, to }) => ({ state, from: place(from), to: place(to) }));
  }

  /** Sets the state of the newest part, from `from` to `to`. */
  #paint(state, from, to) {
    if (to <= from) return;
    while (this.#spans.at(-1)?.from >= from) this.#spans.pop();
    const last = this.#spans.at(-1);
    if (last?.to > from) last.to = from;
    if (last?.state === state && last.to === from) last.to = to;
    else this.#spans.push({ state, from, to });
  }
}

/** Draws a rectangle per span into an <svg>, with its state as class: low while playing, full height while frozen. */
export function draw(svg, spans) {
  svg.setAttribute('viewBox', `0 0 ${WIDTH} ${HEIGHT}`);
  svg.replaceChildren(...spans.map(({ state, from, to }) => {
    const rectangle = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
    const height = HEIGHTS[state];
    // Minimum width, so that short freezes are visible.
    const width = Math.max(2, (to - from) * WIDTH);
    const attributes = { class: state, x: to * WIDTH - width, y: HEIGHT - height, width, height };
    for (const [name, value] of Object.entries(attributes)) rectangle.setAttribute(name, value);
    return rectangle;
  }));
}
