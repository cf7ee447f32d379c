// Counts the freezes of a <video> element from its events and a watchdog of its clock.
//
// A stall lasts from `waiting`, after the first `playing`, to the next `playing`: the buffer is empty
// and the picture does not change. Startup is not a stall. Shorter stalls than the threshold count as
// playing, because browsers fire `waiting` for tens of milliseconds after the start. The denominator
// of every rate is the wall time from the first rendered frame to the end, including stalls but not
// startup: `playedMs + freezeMs`.
//
// The element's events are unreliable: some stalls have no `waiting`, and some `playing` is never
// fired. So a stall also starts if media time stops for WATCHDOG_MS, back-dated to the stop, and ends
// if media time advances in two successive ticks.
//
// Times are milliseconds of a monotonic clock. The object holds sums only, so it never grows.

/** Minimum lengths of counted stalls, in milliseconds. Counts of all lengths come from the same events. */
export const THRESHOLDS_MS = [0, 200, 500, 1250];
/** Minimum length of a freeze on pages and in beacons. */
export const FREEZE_MS = 200;
/** Stop of media time that counts as a stall even without an event. */
export const WATCHDOG_MS = 1250;
/** Pause between ticks above which the page was suspended, so that stopped media time is not a freeze. */
export const ASLEEP_MS = 10_000;

export class FreezeCounter {
  #state = 'idle'; // idle | playing | frozen
  #since = 0;
  #mayFreeze = false;
  #watchedMs = 0;
  #stalls = THRESHOLDS_MS.map(() => ({ count: 0, ms: 0 }));
  #tickAt = 0;
  #mediaTime = 0;
  #advancedAt = 0;
  #advancing = false;

  /** The first frame was shown. Starts the count of time. */
  firstFrame(now) {
    if (this.#state === 'idle') this.#enter('playing', now);
  }

  /** Handles the element's `playing`. */
  playing(now) {
    this.#mayFreeze = true;
    this.#advancedAt = now;
    if (this.#state !== 'playing') this.#enter('playing', now);
  }

  /** Handles the element's `waiting`, or the loss of its connection. */
  waiting(now) {
    if (this.#mayFreeze && this.#state === 'playing') this.#enter('frozen', now);
  }

  /** The stream ended or the viewer stopped it. The time until the next start is neither played nor frozen. */
  stop(now) {
    this.#mayFreeze = false;
    if (this.#state !== 'idle') this.#enter('idle', now);
  }

  /** Watchdog, called a few times per second with the element's `currentTime` in seconds. */
  tick(now, mediaTime) {
    const pause = now - this.#tickAt;
    const advance = mediaTime - this.#mediaTime;
    this.#tickAt = now;
    this.#mediaTime = mediaTime;
    if (this.#state === 'idle') return;
    if (pause > ASLEEP_MS && advance * 1000 < pause / 2) {
      const slept = Math.min(pause, now - this.#since);
      this.#since += slept;
      this.#advancedAt = now;
      this.#advancing = false;
    } else if (advance > 0) {
      if (this.#state === 'frozen' && this.#advancing) this.#enter('playing', Math.max(this.#since, this.#advancedAt));
      this.#advancing = true;
      this.#advancedAt = now;
    } else {
      this.#advancing = false;
      if (this.#mayFreeze && this.#state === 'playing' && now - this.#advancedAt >= WATCHDOG_MS) {
        this.#enter('frozen', Math.max(this.#since, this.#advancedAt));
      }
    }
  }

  /** Whether the picture is frozen now. */
  get frozen() {
    return this.#state === 'frozen';
  }

  /**
   * The sums, including a stall in progress: `freezes`, `freezeMs` and `playedMs` for stalls of
   * FREEZE_MS and more, and `stalls` with count and length for each of THRESHOLDS_MS.
   */
  snapshot(now) {
    const lasting = this.#state === 'idle' ? 0 : now - this.#since;
    const stalls = this.#stalls.map(({ count, ms }, i) => {
      const open = this.#state === 'frozen' && lasting >= THRESHOLDS_MS[i];
      return { thresholdMs: THRESHOLDS_MS[i], count: count + (open ? 1 : 0), ms: ms + (open ? lasting : 0) };
    });
    const { count: freezes, ms: freezeMs } = stalls[THRESHOLDS_MS.indexOf(FREEZE_MS)];
    return { freezes, freezeMs, playedMs: this.#watchedMs + lasting - freezeMs, stalls };
  }

  #enter(state, now) {
    const lasted = now - this.#since;
    if (this.#state !== 'idle') this.#watchedMs += lasted;
    if (this.#state === 'frozen') {
      this.#stalls.forEach((stall, i) => {
        if (lasted >= THRESHOLDS_MS[i]) {
          stall.count += 1;
          stall.ms += lasted;
        }
      });
    }
    this.#state = state;
    this.#since = now;
    this.#advancing = false;
  }
}
