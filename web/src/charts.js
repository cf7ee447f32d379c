// A chart of up to the last ten minutes: uPlot on a History. Its own legend shows the latest values, or the values under
// the pointer, so that the chart is readable without its canvas.
import uPlot from './uPlot.esm.js';
import { ABSENT } from './format.js';
import { History } from './history.js';

const HEIGHT = 150;
const WINDOW_S = 600;
/** Time span below which ticks show seconds and need more space. */
const FINE_S = 300;
/** Dash patterns, so that lines differ by more than colour. */
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [12, 5], [4, 4], [2, 6], [8, 3, 2, 3, 2, 3]];

const scheme = matchMedia('(prefers-color-scheme: dark)');
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const pointer = uPlot.sync('charts');

export class Chart {
  #history = new History(WINDOW_S);
  #spec;
  #plot = null;
  #drawn = '';
  #slots = new Map();
  #nodes;

  /** `spec`: `title`, `format(value)` for the legend, `axis(value)` for short axis labels. */
  constructor(host, spec) {
    this.#spec = spec;
    const figure = document.createElement('figure');
    const caption = document.createElement('figcaption');
    const title = document.createElement('h2');
    const legend = document.createElement('ul');
    const plot = document.createElement('div');
    title.textContent = spec.title;
    legend.className = 'legend';
    plot.className = 'plot';
    plot.setAttribute('aria-hidden', 'true');
    caption.append(title, legend);
    figure.append(caption, plot);
    host.append(figure);
    this.#nodes = { legend, plot };
    new ResizeObserver(() => this.#plot?.setSize({ width: plot.clientWidth, height: HEIGHT })).observe(plot);
    scheme.addEventListener('change', () => this.#plot && this.#rebuild());
  }

  /** Adds a point. `order` lists all names and determines their colours in every chart. */
  push(time, values, order = Object.keys(values)) {
    this.#slots = new Map(order.map((name, index) => [name, index % DASHES.length]));
    this.#history.push(time, values);
    this.#draw();
  }

  #slot(name) {
    return this.#slots.get(name) ?? DASHES.length - 1;
  }

  #draw() {
    if (document.hidden || this.#history.length === 0) return;
    const names = this.#history.names;
    const shape = names.map((name) => `${name}\u0000${this.#slot(name)}`).join('\u0001');
    if (shape !== this.#drawn || !this.#plot) {
      this.#drawn = shape;
      this.#rebuild();
    } else this.#plot.setData(this.#history.data);
    this.#label(this.#plot.cursor.idx);
  }

  #rebuild() {
    this.#plot?.destroy();
    const names = this.#history.names;
    const axis = { stroke: colour('muted'), grid: { stroke: colour('grid'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
    this.#plot = new uPlot(
      {
        width: this.#nodes.plot.clientWidth,
        height: HEIGHT,
        padding: [8, 26, 0, 0],
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, sync: { key: pointer.key }, points: { size: 5 } },
        scales: {
          x: { range: () => this.#history.span() },
          y: { range: (_, _min, max) => [0, max > 0 ? max * 1.1 : 1] },
        },
        axes: [
          {
            ...axis,
            size: 22,
            space: (_, _axis, from, to) => (to - from < FINE_S ? 70 : 50),
            incrs: (_, _axis, from, to) => (to - from < FINE_S ? [1, 2, 5, 10, 15, 30, 60, 120] : [60, 120, 300]),
            values: (_, times, _axis, _space, step) => times.map((time) => clock(time, step)),
          },
          { ...axis, size: 44, space: 28, values: (_, values) => values.map(this.#spec.axis) },
        ],
        series: [
          {},
          ...names.map((name) => ({
            label: name,
            stroke: colour(`series-${this.#slot(name)}`),
            dash: DASHES[this.#slot(name)],
            width: 1.75,
            points: { show: false },
          })),
        ],
        hooks: { setCursor: [(plot) => this.#label(plot.cursor.idx)] },
      },
      this.#history.data,
      this.#nodes.plot,
    );
    this.#nodes.legend.replaceChildren(...names.map((name) => this.#legendItem(name)));
  }

  #legendItem(name) {
    const svg = 'http://www.w3.org/2000/svg';
    const swatch = document.createElementNS(svg, 'svg');
    const line = document.createElementNS(svg, 'line');
    const attributes = { x1: 0, x2: 20, y1: 3, y2: 3, stroke: colour(`series-${this.#slot(name)}`), 'stroke-width': 2.5, 'stroke-dasharray': DASHES[this.#slot(name)].join(' ') };
    for (const [key, value] of Object.entries(attributes)) line.setAttribute(key, value);
    swatch.setAttribute('aria-hidden', 'true');
    swatch.append(line);
    const item = document.createElement('li');
    const value = document.createElement('b');
    item.append(swatch, name, value);
    return item;
  }

  /** Shows the values at `index`, or the latest ones, in the legend. */
  #label(index) {
    const columns = this.#history.data.slice(1);
    const at = index ?? this.#history.length - 1;
    [...this.#nodes.legend.children].forEach((item, i) => {
      const value = columns[i]?.[at] ?? null;
      item.lastChild.textContent = value === null ? ABSENT : this.#spec.format(value);
    });
  }
}

/** Formats ticks, with seconds if they are less than a minute apart. */
const clock = (time, step) => new Date(time * 1000).toLocaleTimeString('en-GB', {
  hour: '2-digit', minute: '2-digit', ...(step < 60 && { second: '2-digit' }),
});
