// The camera of both views: position, movement by the user, and faces hit by rays. Included before mesh_drawing.js and mesh.js.
const FIELD_OF_VIEW = 0.5, HOME = { yaw: 0.62, pitch: 0.36, distance: 5.7, x: 0, y: -0.1, z: 0 };
const camera = { ...HOME };

const add = (a, b, t = 1) => a.map((x, i) => x + b[i] * t);
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];

function lens(aspect) {
  const { yaw, pitch } = camera;
  const back = [Math.sin(yaw) * Math.cos(pitch), Math.sin(pitch), Math.cos(yaw) * Math.cos(pitch)];
  const right = [Math.cos(yaw), 0, -Math.sin(yaw)], up = cross(back, right);
  const distance = camera.distance * Math.max(1, 0.94 / aspect); // greater in a narrow view
  const eye = add([camera.x, camera.y, camera.z], back, distance), tan = Math.tan(FIELD_OF_VIEW / 2);
  const near = Math.max(0.1 * distance, distance - 3), far = distance + 6, depth = -(far + near) / (far - near);
  const rows = [right.map((x) => x / (tan * aspect)), up.map((x) => x / tan), back.map((x) => x * depth), back.map((x) => -x)];
  const shift = rows.map((row) => -dot(row, eye));
  shift[2] -= (2 * far * near) / (far - near);
  const matrix = new Float32Array(16);
  rows.forEach((row, i) => [...row, shift[i]].forEach((x, j) => { matrix[4 * j + i] = x; }));
  return { camera: matrix, eye, right, up, back, tan, aspect };
}

function orbit(across, down) {
  camera.yaw -= across;
  camera.pitch = Math.max(-1.45, Math.min(1.5, camera.pitch + down));
}

function pan(across, down) { // in view heights
  const { right, up, tan } = lens(1), scale = 2 * tan * camera.distance;
  const to = add(add([camera.x, camera.y, camera.z], right, -across * scale), up, down * scale).map((x) => Math.max(-2, Math.min(2, x)));
  Object.assign(camera, { x: to[0], y: to[1], z: to[2] });
}

function zoom(factor) {
  camera.distance = Math.max(0.9, Math.min(14, camera.distance * factor));
}

const still = window.matchMedia("(prefers-reduced-motion: reduce)");
const turning = { allowed: true, angle: 0, before: null };
function turn(now) { // turns once around a finished, untouched mesh, unless drawing would slow a run
  const idle = turning.allowed && turning.angle < 2 * Math.PI && root.dataset.state === "done" && root.isConnected;
  if (!idle || still.matches || !renderer || renderer.software) return;
  const step = Math.min(now - (turning.before ?? now), 50) * 2e-4;
  turning.before = now;
  turning.angle += step;
  camera.yaw += step;
  ask();
}

function hit(name, x, y, aspect) {
  const { eye, right, up, back, tan } = lens(aspect), faces = meshOf(name);
  const way = add(add(back.map((c) => -c), right, x * tan * aspect), up, y * tan);
  let best = Infinity, found = -1;
  for (let i = 0; i < shownFaces(name); i++) {
    const [a, b, c] = read(faces, i).corners, ab = add(b, a, -1), ac = add(c, a, -1), normal = cross(way, ac), area = dot(ab, normal);
    if (Math.abs(area) < 1e-12) continue;
    const from = add(eye, a, -1), u = dot(from, normal) / area, side = cross(from, ab), v = dot(way, side) / area, t = dot(ac, side) / area;
    if (u >= 0 && v >= 0 && u + v <= 1 && t > 0 && t < best) [best, found] = [t, i];
  }
  return found;
}
