// Observes playback: a script in the page samples the <video> element ten times per second. It uses the
// element only, so that its results are comparable between players.

/** Runs in the page. `watch.take()` returns the observations since the previous call. */
function observe() {
  const TICK_MS = 100;
  /** Step of media time that is not playback, in seconds. */
  const JUMP_S = 1;
  const fresh = () => ({ ms: 0, played_s: 0, frames: 0, corrupted: 0, sound_bytes: 0, loud_ms: 0, still_ms: 0, jumps: [], errors: [], restarts: 0 });
  let sums = fresh();
  let since = performance.now();
  let video;
  let analyser;
  /** Counts of the element, which restart with each source. */
  let counts = { frames: 0, corrupted: 0, sound_bytes: 0 };
  let time = 0;
  let movedAt = null;

  function listen(element) {
    video = element;
    video.addEventListener('error', () => sums.errors.push(`${video.error?.code} ${video.error?.message}`));
    video.addEventListener('loadstart', () => { sums.restarts += 1; });
    const context = new AudioContext();
    analyser = context.createAnalyser();
    context.createMediaElementSource(video).connect(analyser);
  }

  function loudness() {
    const samples = new Float32Array(analyser.fftSize);
    analyser.getFloatTimeDomainData(samples);
    return Math.sqrt(samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length);
  }

  function tick() {
    const element = document.querySelector('video');
    if (!element) return;
    if (element !== video) listen(element);
    // Players start muted, as browsers require.
    video.muted = false;
    const now = performance.now();
    const quality = video.getVideoPlaybackQuality();
    const latest = { frames: quality.totalVideoFrames, corrupted: quality.corruptedVideoFrames, sound_bytes: video.webkitAudioDecodedByteCount };
    for (const [name, value] of Object.entries(latest)) sums[name] += value < counts[name] ? value : value - counts[name];
    counts = latest;
    if (movedAt !== null) sums.still_ms = Math.max(sums.still_ms, Math.round(now - movedAt));
    if (video.currentTime !== time) {
      const step = video.currentTime - time;
      if (movedAt !== null && (step < 0 || step > JUMP_S)) sums.jumps.push(Math.round(step * 1000) / 1000);
      else if (movedAt !== null) sums.played_s += step;
      time = video.currentTime;
      movedAt = now;
    }
    sums.loud_ms += loudness() > 0.01 ? TICK_MS : 0;
  }

  setInterval(tick, TICK_MS);
  window.watch = {
    take() {
      const now = performance.now();
      const taken = { ...sums, ms: Math.round(now - since), time, width: video?.videoWidth, height: video?.videoHeight, ready: video?.readyState };
      sums = fresh();
      since = now;
      return taken;
    },
  };
}

export const WATCH = `(${observe})()`;
