// Headline numbers in fixed boxes: `{ title, value, note, tone }` each, as text.

export class Tiles {
  #boxes;

  /** Adds a box for each of `tiles` to `host`, an empty `dl`. */
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

  /** Updates the values of the tiles, in the same order. */
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
