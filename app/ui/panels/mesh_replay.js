// Replays a finished run from its course: the faces at a time, the current draft, and the rejected part of the previous draft.
// Included before mesh.js.
const RECORD = __RECORD__;
const courses = {}; // of the current runs, by side

function endReplay(name, course) {
  const side = sides[name], of = (text, Kind) => new Kind(bytes(text).buffer);
  if (side.upto !== null) {
    meshOf(name).changed = true; // its shadow changes with fewer faces
    empties(side.ghost);
  }
  side.upto = null;
  empties(side.refused);
  courses[name] = course && {
    seconds: of(course.seconds, Float32Array), passes: of(course.passes, Int32Array), tokens: of(course.tokens, Int32Array),
    drafts: bytes(course.drafts), corners: of(course.corners ?? "", Int32Array),
  };
}

function empties(mesh) {
  Object.assign(mesh, EMPTY, { changed: true });
}

// Sends the replay bar the time of each token.
function tellCourse(name) {
  const course = courses[name];
  if (!course || !course.tokens.length) return;
  const end = new Float32Array(course.tokens.at(-1));
  course.tokens.forEach((upto, step) => end.fill(course.seconds[step], step ? course.tokens[step - 1] : 0, upto));
  emit("course", { side: name === "accelerated" ? "fast" : name, end }, scope);
}

const stepOf = (records, at) => records[at + 12] | (records[at + 13] << 8) | (records[at + 14] << 16);

// Drafted faces of a step: all of them, or only those never accepted.
function draftsOf(records, step, rejected) {
  const chosen = [];
  for (let at = 0; at < records.length; at += RECORD) {
    if (stepOf(records, at) === step && (!rejected || !records[at + 9])) chosen.push(...records.subarray(at, at + RECORD));
  }
  return new Uint8Array(chosen);
}

function replaySide(name, time) {
  const side = sides[name], course = courses[name];
  const steps = course.seconds.filter((second) => second <= time).length, { faces } = side;
  const upto = (step) => { // number of faces completed before a step; faces are in the order of steps
    let count = 0;
    while (count < faces.count && read(faces, count).step < step) count++;
    return count;
  };
  Object.assign(side, { upto: upto(steps), fresh: upto(steps - 1) });
  meshOf(name).changed = true; // for the shadow
  empties(side.ghost);
  empties(side.refused);
  append(side.ghost, draftsOf(course.drafts, steps - 1, false));
  append(side.refused, draftsOf(course.drafts, steps - 2, true));
  const tokens = steps ? course.tokens[steps - 1] : 0, passes = steps ? course.passes[steps - 1] : 0;
  const seconds = Math.min(time, course.seconds.at(-1));
  drawCounters(name, {
    seconds: seconds.toFixed(2), tokens_per_second: seconds ? (tokens / seconds).toFixed(1) : "", forwards: passes.toLocaleString("en"),
    step_compression: passes ? (tokens / passes).toFixed(2) : "",
  });
  part(`.ft-mesh-sides [data-side=${name}] .ft-mesh-count`).textContent = countText(shownFaces(name), "face");
}

// time null: the finished meshes
function replay(time) {
  if (time === null) {
    if (root.dataset.replayed) draw();
    return;
  }
  for (const name of shown) if (courses[name]) replaySide(name, time);
  root.dataset.replayed = time.toFixed(3);
  tellCounts();
  drawReadout();
  drawBar();
}
