// The last minute of a player as a strip: when it played, and when its picture was frozen. What is frozen follows from
// the sums of `FreezeCounter`, so that the strip shows the freezes that are counted, and no shorter stalls.

/** What the strip shows, in milliseconds. */
export const WINDOW_MS = 60_000;
/** The strip's size in units of its own, and how high each state stands in it. */
const [WIDTH, HEIGHT] = [1000, 20];
const HEIGHTS = { off: 2, playing: 5, frozen: HEIGHT };

export class Minute {
  #spans = [];
  #at = null;
  #frozenMs = 0;

  /**
   * What is seen at `now`, later than what was seen before: whether there is a picture, and for how long it has been
   * frozen in all, in milliseconds. Returns whether it has been frozen since the last look.
   */
  push(now, isOn, frozenMs) {
    const since = this.#at ?? now;
    const grown = frozenMs - this.#frozenMs;
    const last = this.#spans.at(-1);
    // A freeze that was seen by the last look goes on from there, and may have ended; a stall becomes a freeze when it
    // has lasted a while, and then counts from its beginning.
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

  /** The spans until `now`, oldest first: `{ state, from, to }` with places as shares of the strip, 0 to 1. */
  spans(now) {
    const place = (time) => Math.min(1, Math.max(0, 1 - (now - time) / WINDOW_MS));
    return this.#spans.map(({ state, from, to }) => ({ state, from: place(from), to: place(to) }));
  }

  /** Gives the newest part, from `from` to `to`, this state. */
  #paint(state, from, to) {
    if (to <= from) return;
    while (this.#spans.at(-1)?.from >= from) this.#spans.pop();
    const last = this.#spans.at(-1);
    if (last?.to > from) last.to = from;
    if (last?.state === state && last.to === from) last.to = to;
    else this.#spans.push({ state, from, to });
  }
}

/** Draws spans into an <svg>, a rectangle for each with its state as class: low while playing, the full height while frozen. */
export function draw(svg, spans) {
  svg.setAttribute('viewBox', `0 0 ${WIDTH} ${HEIGHT}`);
  svg.replaceChildren(...spans.map(({ state, from, to }) => {
    const rectangle = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
    const height = HEIGHTS[state];
    // The shortest freeze is to be seen too.
    const width = Math.max(2, (to - from) * WIDTH);
    const attributes = { class: state, x: to * WIDTH - width, y: HEIGHT - height, width, height };
    for (const [name, value] of Object.entries(attributes)) rectangle.setAttribute(name, value);
    return rectangle;
  }));
}
