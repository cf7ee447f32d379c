// The stream of server-sent events, kept alive. A browser reconnects by itself after a dropped
// connection but gives up for good on an error status, and it does not notice a connection that
// went silent: both are handled here by opening a new one, with growing waits.
//
// Nothing here reads a clock: `tick(now)`, about once per second, drives it. Milliseconds.

/** An event comes each second: after this the page says that data is missing. */
export const LATE_MS = 3000;
/** After this without an event the connection is replaced. */
export const SILENT_MS = 8000;
/** Waits between connections double from one second to this. */
export const LONGEST_WAIT_MS = 15_000;

const CLOSED = 2; // EventSource.CLOSED

export class Feed {
  #open;
  #onData;
  #source = null;
  #heardAt;
  #openedAt = 0;
  #wait = 1000;
  #retryAt;
  #unreadable = false;

  /** `open()` gives an EventSource; `onData` gets each event's object. */
  constructor(open, onData, now) {
    this.#open = open;
    this.#onData = onData;
    this.#heardAt = now;
    this.#retryAt = now;
    this.tick(now);
  }

  /** What the page shows: `live`, `late` (with seconds since the last event) or `unreadable`. */
  state(now) {
    if (this.#unreadable) return { state: 'unreadable', silentS: 0 };
    const silent = now - this.#heardAt;
    return { state: silent > LATE_MS ? 'late' : 'live', silentS: Math.floor(silent / 1000) };
  }

  tick(now) {
    if (this.#source) {
      const silent = now - Math.max(this.#heardAt, this.#openedAt) > SILENT_MS;
      if (this.#source.readyState !== CLOSED && !silent) return;
      this.#source.close();
      this.#source = null;
      this.#retryAt = now + this.#wait;
      this.#wait = Math.min(2 * this.#wait, LONGEST_WAIT_MS);
    }
    if (now >= this.#retryAt) {
      this.#openedAt = now;
      this.#source = this.#open();
    }
  }

  /** An event's text arrived. */
  heard(text, now) {
    this.#heardAt = now;
    this.#wait = 1000;
    let data = null;
    try {
      data = JSON.parse(text);
    } catch {
      // Said on the page by `state`: a server that sends no JSON here is another version or a proxy.
    }
    this.#unreadable = data === null || typeof data !== 'object';
    if (!this.#unreadable) this.#onData(data);
  }
}
