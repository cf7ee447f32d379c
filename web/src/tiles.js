// Headline numbers in boxes that stay where they are: `{ title, value, note, tone }` each, as text.

export class Tiles {
  #boxes;

  /** `host` is an empty list (`dl`), which gets a box for each of `tiles`. */
  constructor(host, tiles) {
    this.#boxes = tiles.map(({ title }) => {
      const [box, dt, dd, value, note] = ['div', 'dt', 'dd', 'span', 'small'].map((tag) => document.createElement(tag));
      dt.textContent = title;
      dd.append(value, note);
      box.append(dt, dd);
      host.append(box);
      return { value, note };
    });
  }

  /** The same tiles, in the same order, with other values. */
  update(tiles) {
    tiles.forEach(({ value, note = '', tone = '' }, i) => {
      const box = this.#boxes[i];
      box.value.textContent = value;
      box.note.textContent = note;
      box.value.dataset.tone = tone;
      box.note.dataset.tone = tone;
    });
  }
}
