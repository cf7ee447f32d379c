// The last minutes of a few named series in step, in the shape that uPlot draws: one list of times
// and one of values per name, `null` where there is none. Bounded in time, in points and in series.

export class History {
  #windowS;
  #gapS;
  #maxSeries;
  #times = [];
  #columns = new Map();

  /**
   * Keeps `windowS` seconds and at most two points for each. Times that lie more than `gapS` apart
   * are not joined by a line. Series beyond `maxSeries` are left out.
   */
  constructor(windowS = 600, gapS = 3, maxSeries = 8) {
    this.#windowS = windowS;
    this.#gapS = gapS;
    this.#maxSeries = maxSeries;
  }

  /** Adds the values of one moment, in seconds: an object from name to number or null. */
  push(time, values) {
    if (!Number.isFinite(time)) return;
    // The server's clock may step back: what it now calls the future is gone.
    while (this.#times.length && this.#times.at(-1) >= time) this.#each((list) => list.pop());
    const last = this.#times.at(-1);
    if (last !== undefined && time - last > this.#gapS) this.#append(last + this.#gapS / 2, {});
    this.#append(time, values);
    while (this.#times[0] < time - this.#windowS || this.#times.length > 2 * this.#windowS) {
      this.#each((list) => list.shift());
    }
    for (const [name, column] of this.#columns) {
      if (!Object.hasOwn(values, name) && column.every((value) => value === null)) this.#columns.delete(name);
    }
  }

  #append(time, values) {
    for (const name of Object.keys(values)) {
      if (!this.#columns.has(name) && this.#columns.size < this.#maxSeries) {
        this.#columns.set(name, this.#times.map(() => null));
      }
    }
    this.#times.push(time);
    for (const [name, column] of this.#columns) {
      const value = Object.hasOwn(values, name) ? values[name] : null;
      column.push(Number.isFinite(value) ? value : null);
    }
  }

  #each(action) {
    action(this.#times);
    this.#columns.forEach(action);
  }

  get names() {
    return [...this.#columns.keys()];
  }

  get length() {
    return this.#times.length;
  }

  /**
   * `[from, to]` of the time axis: from the first value that is kept, so that a few seconds fill the
   * width as ten minutes do. It has at least `leastS` seconds, through which the line grows.
   */
  span(leastS = 30) {
    const columns = [...this.#columns.values()];
    const last = this.#times.at(-1) ?? 0;
    const from = this.#times.find((_, i) => columns.some((column) => column[i] !== null)) ?? last - leastS;
    return [from, Math.max(last, from + leastS)];
  }

  /** `[times, values of the first name, …]`; the lists are the object's own. */
  get data() {
    return [this.#times, ...this.#columns.values()];
  }
}
