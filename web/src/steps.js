// A group's cap over time as steps. A decision is in force until the next one, or until its lifetime ends. Lines are SVG,
// so that the style sheet sets their colours in both schemes. Labels are text next to them.

const SVG = 'http://www.w3.org/2000/svg';
const HEIGHT = 170;
const MARGIN = { left: 46, right: 10, top: 10, bottom: 22 };
const HOUR = 3600;
/** Possible distances between ticks, in seconds. The first one that leaves room is used. */
const TICKS = [0.25, 0.5, 1, 2, 3, 6, 12, 24].map((hours) => hours * HOUR);

const finite = (value) => typeof value === 'number' && Number.isFinite(value);

/** Steps of a report's columns: `{ from, to, rate, off }`, in seconds and in the unit of the rate. */
export function steps({ ends, rates, offs, lifetimeS, until }) {
  const all = [];
  (Array.isArray(ends) ? ends : []).forEach((from, i) => {
    const rate = rates?.[i];
    if (!finite(from) || !finite(rate)) return;
    const next = finite(ends[i + 1]) ? ends[i + 1] : until;
    const to = Math.max(from, Math.min(next, from + lifetimeS));
    if (finite(to)) all.push({ from, to, rate, off: Boolean(offs?.[i]) });
  });
  return all;
}

/** The step at a time, if any. */
export const at = (all, time) => all.findLast(({ from, to }) => from <= time && time <= to);

/** Three or four round numbers from 0 to at least `max`. */
export function marks(max) {
  if (!(max > 0) || !Number.isFinite(max)) return [0, 1];
  const power = 10 ** Math.floor(Math.log10(max));
  const step = [0.1, 0.2, 0.25, 0.5, 1, 2, 2.5, 5].map((part) => part * power).find((part) => max / part <= 4);
  const count = Math.ceil(max / step - 1e-9);
  return Array.from({ length: count + 1 }, (_, i) => Number((i * step).toPrecision(6)));
}

/** At most `most` tick times between two times, at full hours of local time. */
export function ticks(from, to, most) {
  const step = TICKS.find((one) => (to - from) / one <= most) ?? Math.ceil((to - from) / most / (24 * HOUR)) * 24 * HOUR;
  const shift = new Date(from * 1000).getTimezoneOffset() * 60;
  const times = [];
  for (let time = Math.ceil((from - shift) / step) * step + shift; time <= to; time += step) times.push(time);
  return times;
}

/** Lines along the steps that are off, or along the others, as a path's `d`. Adjacent steps are joined. */
export function path(all, off, x, y) {
  let before = null;
  return all.filter((step) => step.off === off).map((step) => {
    const joined = before?.to === step.from;
    before = step;
    return `${joined ? 'L' : 'M'}${x(step.from)} ${y(step.rate)}L${x(step.to)} ${y(step.rate)}`;
  }).join('');
}

const node = (tag, attributes, text = '') => {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text) made.textContent = text;
  return made;
};

export class Steps {
  #svg = node('svg', { class: 'steps', role: 'img', height: HEIGHT });
  #here = node('line', { class: 'here', y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom });
  #shown = { all: [], label: '' };
  #format;
  #said;
  #scale = null;

  /** `format(rate)` for the axis. `said(step, time)` receives the step under the pointer, `undefined` when it leaves. */
  constructor(host, format, said) {
    this.#format = format;
    this.#said = said;
    host.append(this.#svg);
    new ResizeObserver(() => this.#draw()).observe(this.#svg);
    this.#svg.addEventListener('pointermove', ({ clientX }) => this.#point(clientX));
    this.#svg.addEventListener('pointerleave', () => {
      this.#here.remove();
      this.#said(undefined);
    });
  }

  /** Shows steps, with a label for screen readers. */
  update(all, label) {
    this.#shown = { all, label };
    this.#draw();
  }

  #draw() {
    const width = this.#svg.clientWidth;
    const { all, label } = this.#shown;
    this.#svg.setAttribute('aria-label', label);
    this.#svg.replaceChildren();
    this.#scale = null;
    if (!width || !all.length) return;
    const [from, to] = [all[0].from, Math.max(all.at(-1).to, all[0].from + HOUR / 2)];
    const values = marks(Math.max(...all.map(({ rate }) => rate)) * 1.02);
    const top = values.at(-1);
    const [left, right, bottom] = [MARGIN.left, width - MARGIN.right, HEIGHT - MARGIN.bottom];
    const x = (time) => Number((left + (time - from) / (to - from) * (right - left)).toFixed(1));
    const y = (rate) => Number((bottom - rate / top * (bottom - MARGIN.top)).toFixed(1));
    this.#scale = (px) => from + (px - left) / (right - left) * (to - from);
    this.#svg.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
    for (const { from: begin, to: end, off } of all) {
      if (off) this.#svg.append(node('rect', { class: 'ground', x: x(begin), y: MARGIN.top, width: x(end) - x(begin), height: bottom - MARGIN.top }));
    }
    for (const value of values) {
      this.#svg.append(node('line', { class: 'grid', x1: left, x2: right, y1: y(value), y2: y(value) }));
      this.#svg.append(node('text', { x: left - 6, y: y(value) + 4, 'text-anchor': 'end' }, this.#format(value)));
    }
    for (const time of ticks(from, to, Math.max(2, Math.floor((right - left) / 64)))) {
      this.#svg.append(node('text', { x: x(time), y: HEIGHT - 6, 'text-anchor': 'middle' }, clock(time)));
    }
    for (const { from: begin, to: end, rate, off } of all) {
      if (!off) this.#svg.append(node('rect', { class: 'area', x: x(begin), y: y(rate), width: x(end) - x(begin), height: bottom - y(rate) }));
    }
    this.#svg.append(node('path', { class: 'held', d: path(all, false, x, y) }), node('path', { class: 'off', d: path(all, true, x, y) }));
  }

  #point(clientX) {
    if (!this.#scale) return;
    const px = clientX - this.#svg.getBoundingClientRect().left;
    const step = at(this.#shown.all, this.#scale(px));
    this.#here.setAttribute('x1', px);
    this.#here.setAttribute('x2', px);
    if (step) this.#svg.append(this.#here);
    else this.#here.remove();
    this.#said(step, this.#scale(px));
  }
}

/** The hour, or the day at midnight. */
const clock = (time) => {
  const date = new Date(time * 1000);
  if (date.getHours() + date.getMinutes() === 0) return date.toLocaleDateString('en-GB', { day: 'numeric', month: 'short' });
  return date.toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' });
};
