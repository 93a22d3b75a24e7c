// Replays a race. The panels of the tab send the times of their tokens ("foretoken:course"); this bar sends the current time.
const bar = element.querySelector(".ft-replay"), range = bar.querySelector("input"), output = bar.querySelector("output");
const part = (name) => bar.querySelector(`[data-do=${name}]`);
const courses = {}; // time of each token, by side
const main = () => courses.fast || courses.lane1;
let time = null; // seconds; null: the finished race
let running = false;
let began = null; // of the animation: frame time, and race time

const longest = () => Math.max(...Object.values(courses).map((end) => end.at(-1)));
const ends = () => [...new Set(Object.values(courses).flatMap((end) => [...end]))].sort((a, b) => a - b);
const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;

function show(now) {
  const whole = longest();
  time = now === null || now >= whole ? null : Math.max(0, now);
  range.value = time === null ? 1000 : (1000 * time) / whole;
  range.style.setProperty("--at", `${range.value / 10}%`);
  const tokens = main().filter((end) => time === null || end <= time).length;
  output.textContent = `${(time ?? whole).toFixed(2)} of ${whole.toFixed(2)} s`;
  range.setAttribute("aria-valuetext", output.textContent);
  bar.dataset.playing = began !== null;
  part("play").textContent = began === null ? "Replay" : "Pause";
  emit("replay", { time, tokens }, scope);
}

function frame(stamp) {
  if (began === null) return;
  began.stamp ??= stamp;
  const now = began.time + ((stamp - began.stamp) / 1000) * Number(bar.querySelector("select").value);
  if (now >= longest()) began = null;
  show(now);
  requestAnimationFrame(frame);
}

function play() {
  if (began !== null) return pause();
  began = { time: time ?? 0, stamp: null };
  if (still) return step(1); // the user prefers reduced motion
  requestAnimationFrame(frame);
}

function pause() {
  began = null;
  show(time);
}

function step(by) {
  began = null;
  const all = ends(), now = time ?? Infinity;
  const next = by > 0 ? all.find((end) => end > now + 1e-6) : all.findLast((end) => end < now - 1e-6);
  show(by > 0 ? (time === null ? all[0] : next ?? null) : next ?? 0);
}

part("play").addEventListener("click", play);
part("back").addEventListener("click", () => step(-1));
part("on").addEventListener("click", () => step(1));
bar.querySelector("select").addEventListener("change", () => { if (began) began = { time: time ?? 0, stamp: null }; });
range.addEventListener("input", () => { began = null; show((range.value / 1000) * longest()); });
scope.addEventListener("foretoken:course", ({ detail }) => {
  courses[detail.side] = detail.end;
  began = null;
  bar.hidden = running || !main();
  if (main()) show(null);
});
scope.addEventListener("foretoken:running", ({ detail }) => {
  const begins = detail && !running; // repeated with every update of a run
  running = detail;
  if (begins) {
    began = null;
    for (const side of Object.keys(courses)) delete courses[side];
  }
  bar.hidden = running || !main();
});
scope.addEventListener("foretoken:play", () => { if (main() && !still && began === null) play(); });
