// Shaders, WebGL, and the timing of frames. Included between mesh_camera.js and mesh.js.
// bytes of a face on the GPU: three times (x, y, z, accepted | depth | tokens) as uint16, the step, (entropy, probability, top, 0)
const STRIDE = 32;
const SHADOW = 96, REACH = 1.5; // pixels of the view from above, and its extent from the centre
const NARROW = 560; // width in CSS pixels below which the views are stacked

// ---------------------------------------------------------------- shaders

const FACES = [`
layout(location=0) in vec4 a; layout(location=1) in vec4 b; layout(location=2) in vec4 c; layout(location=3) in float step_;
layout(location=4) in vec4 more;
uniform mat4 camera; uniform vec3 eye, clay, unknown, glow; uniform sampler2D lut; uniform int kind, map, fresh, hover;
uniform float high, ground, size;
flat out vec3 normal, albedo; flat out float lift; out vec3 at, edge;
void main() {
  int corner = gl_VertexID % 3;
  mat3 place = (mat3(a.xyz, b.xyz, c.xyz) + .5) / HALF - 1.;
  at = place[corner];
  edge = vec3(corner == 0, corner == 1, corner == 2);
  normal = cross(place[1] - place[0], place[2] - place[0]);
  normal = dot(normal, normal) > 0. ? normalize(normal) : vec3(0, 1, 0);
  bool behind = dot(normal, eye - at) < 0.;
  if (behind) normal = -normal;
  float raw = map == 1 ? a.w : map == 2 ? step_ : map == 3 ? b.w : map == 4 ? more.y : map == 5 ? more.z : more.x;
  bool recorded = map == 2 || raw < UNKNOWN;
  albedo = map == 0 ? clay : recorded ? texture(lut, vec2(mix(.5, 255.5, raw / high) / 256., (float(map) - .5) / MAPS)).rgb : unknown;
  if (map == 2) albedo *= mod(step_, 2.) < 1. ? 1. : .72;
  if (map == 0 && gl_InstanceID >= fresh) albedo = mix(albedo, glow, .6);
  lift = gl_InstanceID == hover ? 1. : 0.;
  gl_Position = kind == 3 ? vec4(at.xz / REACH, 0, 1) : camera * vec4(at, 1);
  gl_Position.z += (kind == 0 ? behind ? 2.5e-3 : 0. : -4e-4) * gl_Position.w; // back faces must not show at shared edges
  gl_PointSize = size;
}`, `
flat in vec3 normal, albedo; flat in float lift; in vec3 at, edge;
uniform vec3 eye, right, up, back, line; uniform int kind, map, taps; uniform float ground, width, opacity, drama, stripes; uniform sampler2D above;
out vec4 colour;
vec3 linear(vec3 c) { return c * c * (c * .3 + .7); }
float cover() { // how much of the sky above is hidden by faces; sampled next to a wall, not inside it
  float hidden = 0.;
  for (int i = 0; i < taps; i++) {
    float way = float(i) * 2.4, far = .13 * sqrt((float(i) + .5) / float(taps));
    vec2 place = at.xz + normal.xz * .12 + far * vec2(cos(way), sin(way));
    hidden += smoothstep(.03, .2, texture(above, place / (REACH * 2.) + .5).g * 2. - 1. - at.y);
  }
  return hidden / float(taps);
}
void main() {
  vec3 slope = fwidth(edge), near = smoothstep(slope * max(width - .75, 0.), slope * (width + .75), edge);
  float stroke = width > 0. ? 1. - min(min(near.x, near.y), near.z) : 0.;
  if (stripes > 0. && mod(gl_FragCoord.x + gl_FragCoord.y, stripes) < stripes * .4) discard; // rejected drafts differ without colours too
  if (kind == 3) { colour = vec4(exp(-2.4 * (at.y - ground)), at.y * .5 + .5, 0, 1); return; }
  if (kind == 2) {
    float far = length(gl_PointCoord - .5) * 2., soft = fwidth(far);
    colour = vec4(mix(albedo, vec3(1), .5 * lift), 1. - smoothstep(1. - 2. * soft, 1., far));
    if (colour.a < .05) discard;
    return;
  }
  if (kind == 1) {
    colour = vec4(map == 0 ? line : albedo, opacity * max(stroke, .35 * lift));
    if (colour.a < .01) discard;
    return;
  }
  vec3 sight = normalize(eye - at); // lights move with the camera
  vec3 key = normalize(-.5 * right + .72 * up + .62 * back), fill = normalize(.85 * right + .05 * up + .5 * back);
  float sky = .5 + .5 * normal.y, lamp = max(dot(normal, key), 0.), side = max(dot(normal, fill), 0.);
  float light = mix(.16, .46, sky) + .78 * lamp + .16 * side;
  light *= mix(.82, 1., smoothstep(0., .4, at.y - ground)) * (1. - .5 * cover());
  light = mix(.95, light, drama);
  float gloss = pow(max(dot(normal, normalize(key + sight)), 0.), 48.) * .16 * drama;
  float rim = pow(1. - max(dot(normal, sight), 0.), 4.) * .16 * drama;
  vec3 lit = linear(albedo) * light + gloss + rim * vec3(.75, .87, 1.);
  lit = sqrt(mix(lit, vec3(1), .3 * lift));
  colour = vec4(mix(lit, line, stroke * .82), mix(opacity, 1., stroke));
}`];
const CLOUD = [`
layout(location=0) in vec3 place; layout(location=1) in vec3 slope;
uniform mat4 camera; uniform vec3 eye, cloud; uniform float size;
out vec3 tint;
void main() {
  gl_Position = camera * vec4(place, 1);
  gl_Position.z -= 2e-3 * gl_Position.w;
  gl_PointSize = max(size / gl_Position.w, 1.5);
  float facing = smoothstep(-.4, .8, dot(slope, normalize(eye - place)));
  tint = dot(slope, slope) > .1 ? mix(cloud, slope * .5 + .5, .62) * mix(.62, 1.08, facing) : cloud;
}`, `
in vec3 tint; out vec4 colour;
void main() {
  float far = length(gl_PointCoord - .5) * 2., soft = fwidth(far);
  colour = vec4(tint, 1. - smoothstep(1. - 2. * soft, 1., far));
  if (colour.a < .05) discard;
}`];
const FLAT = "out vec2 uv; void main() { uv = vec2(gl_VertexID & 1, gl_VertexID >> 1) * 2.; gl_Position = vec4(uv * 2. - 1., 1, 1); }";
const BACKDROP = [FLAT, `
in vec2 uv; uniform vec3 inner, outer; uniform float aspect; out vec4 colour;
void main() {
  float far = length((uv - vec2(.5, .56)) * vec2(min(aspect, 1.4), 1.));
  float grain = fract(sin(dot(gl_FragCoord.xy, vec2(12.9898, 78.233))) * 43758.5453) - .5; // hides banding in soft gradients
  colour = vec4(mix(inner, outer, smoothstep(0., .85, far)) + grain / 255., 1);
}`];
const BLUR = [FLAT, `
in vec2 uv; uniform sampler2D picture; out vec4 colour;
void main() {
  colour = vec4(0);
  for (int i = 0; i < 49; i++) {
    vec2 away = vec2(i % 7, i / 7) - 3.;
    colour += texture(picture, uv + away * 1.5 / PIXELS) * exp(-dot(away, away) / 6.) / 18.2;
  }
}`];
const GROUND = [`
uniform mat4 camera; uniform float ground; out vec2 at;
void main() { at = (vec2(gl_VertexID & 1, gl_VertexID >> 1) * 2. - 1.) * 3.2; gl_Position = camera * vec4(at.x, ground, at.y, 1); }`, `
in vec2 at; uniform sampler2D picture; uniform vec3 grid, shadow; uniform float strength, width, opacity; out vec4 colour;
void main() {
  vec2 cell = at / .25, slope = fwidth(cell), far = abs(fract(cell - .5) - .5) / slope;
  float mark = (1. - smoothstep(width - .5, width + .5, min(far.x, far.y))) * (1. - smoothstep(.7, 2.9, length(at)));
  float inside = 1. - smoothstep(.85, 1., max(abs(at.x), abs(at.y)) / REACH);
  float dark = texture(picture, at / (REACH * 2.) + .5).r * strength * inside;
  float lines = mark * .8 * (1. - dark), all = lines + dark; // the shadow covers the lines
  colour = vec4((grid * lines + shadow * dark) / max(all, 1e-3), all * opacity);
}`];

// ---------------------------------------------------------------- WebGL

const HEAD = `#version 300 es
precision highp float; precision highp int;
const float MAPS = float(__MAP_COUNT__), HALF = float(__FINE__) / 2., UNKNOWN = float(__UNKNOWN__), REACH = float(${REACH}), PIXELS = float(${SHADOW});
`;

function program(gl, [vertex, fragment]) {
  const made = gl.createProgram();
  for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, HEAD + text);
    gl.compileShader(shader);
    gl.attachShader(made, shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS) && !gl.isContextLost()) throw new Error(gl.getShaderInfoLog(shader));
  }
  gl.linkProgram(made);
  const places = {};
  for (let i = 0; i < gl.getProgramParameter(made, gl.ACTIVE_UNIFORMS); i++) {
    const { name, type } = gl.getActiveUniform(made, i);
    places[name] = { at: gl.getUniformLocation(made, name), whole: type === gl.INT || type === gl.SAMPLER_2D };
  }
  return (values) => { // uses the program with these uniforms; others keep their values
    gl.useProgram(made);
    for (const [name, value] of Object.entries(values)) {
      if (!places[name]) continue;
      const { at, whole } = places[name];
      if (whole) gl.uniform1i(at, value);
      else if (value.length === 16) gl.uniformMatrix4fv(at, false, value);
      else gl[`uniform${value.length || 1}fv`](at, value.length ? value : [value]);
    }
  };
}

function picture(gl, width, height, data = null) {
  const made = gl.createTexture();
  gl.bindTexture(gl.TEXTURE_2D, made);
  gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA8, width, height, 0, gl.RGBA, gl.UNSIGNED_BYTE, data);
  for (const side of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, side, gl.CLAMP_TO_EDGE);
  for (const filter of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, filter, gl.LINEAR);
  return made;
}

function target(gl) {
  const texture = picture(gl, SHADOW, SHADOW), buffer = gl.createFramebuffer();
  gl.bindFramebuffer(gl.FRAMEBUFFER, buffer);
  gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, texture, 0);
  return { texture, buffer };
}

function lookUp(gl) { // one row of 256 colours per map except "plain"
  const rows = Object.values(MAPS).map((map) => map.stops).filter((stops) => stops.length);
  const data = rows.flatMap((stops) => Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (stops.length - 1), low = Math.min(Math.floor(at), stops.length - 2);
    return [...stops[low].map((c, k) => Math.round(c + (stops[low + 1][k] - c) * (at - low))), 255];
  }));
  return picture(gl, 256, rows.length, new Uint8Array(data.flat()));
}

function buffer(gl, stride, attributes, divisor) { // attributes: [size, type, normalized, offset] of each
  const array = gl.createVertexArray(), store = gl.createBuffer();
  gl.bindVertexArray(array);
  gl.bindBuffer(gl.ARRAY_BUFFER, store);
  attributes.forEach(([size, type, normalized, offset], i) => {
    gl.enableVertexAttribArray(i);
    gl.vertexAttribPointer(i, size, type, normalized, stride, offset);
    gl.vertexAttribDivisor(i, divisor);
  });
  return (data) => { // binds the buffer, with new contents if given
    gl.bindVertexArray(array);
    if (!data) return;
    gl.bindBuffer(gl.ARRAY_BUFFER, store);
    gl.bufferData(gl.ARRAY_BUFFER, data, gl.DYNAMIC_DRAW);
  };
}

function createRenderer() {
  const gl = canvas.getContext("webgl2", { alpha: false, antialias: true });
  if (!gl) return null;
  const [faces, points, backdrop, blur, floor] = [FACES, CLOUD, BACKDROP, BLUR, GROUND].map((shaders) => program(gl, shaders));
  const faceLayout = [0, 8, 16].map((offset) => [4, gl.UNSIGNED_SHORT, false, offset]).concat([[1, gl.UNSIGNED_INT, false, 24], [4, gl.UNSIGNED_BYTE, false, 28]]);
  const own = Object.fromEntries(SIDES.map((name) => {
    const [solid, ghost, refused] = [0, 1, 2].map(() => buffer(gl, STRIDE, faceLayout, 1));
    return [name, { solid, ghost, refused, above: target(gl), shadow: target(gl) }];
  }));
  const [cloudBuffer, dotBuffer] = [0, 1].map(() => buffer(gl, 12, [[3, gl.SHORT, true, 0], [3, gl.SHORT, true, 6]], 0));
  const lut = lookUp(gl), nothing = gl.createVertexArray();
  const debug = gl.getExtension("WEBGL_debug_renderer_info");
  const software = /swiftshader|llvmpipe|basic render/i.test(debug ? gl.getParameter(debug.UNMASKED_RENDERER_WEBGL) : "");
  for (const mesh of SIDES.flatMap((name) => [meshOf(name), sides[name].ghost, sides[name].refused])) mesh.changed = true;
  cloud.changed = dots.changed = true;
  let lowest = null; // ground level of the current shadows

  function flat(kind, count) {
    gl.bindVertexArray(nothing);
    gl.drawArrays(kind, 0, count);
  }

  function upload(mesh, bind) {
    const { changed } = mesh;
    bind(changed ? mesh.data.subarray(0, mesh.count * STRIDE) : null);
    mesh.changed = false;
    return changed;
  }

  function lookFromAbove(name, low) { // renders closeness to the ground, blurred into a soft shadow, and height
    const { above, shadow } = own[name];
    gl.viewport(0, 0, SHADOW, SHADOW);
    gl.bindFramebuffer(gl.FRAMEBUFFER, above.buffer);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.enable(gl.BLEND);
    gl.blendEquation(gl.MAX);
    gl.bindTexture(gl.TEXTURE_2D, lut);
    faces({ kind: 3, ground: low, width: 0, above: 0 }); // a texture must not be read while it is the target
    gl.drawArraysInstanced(gl.TRIANGLES, 0, 3, shownFaces(name));
    gl.blendEquation(gl.FUNC_ADD);
    gl.disable(gl.BLEND);
    gl.bindFramebuffer(gl.FRAMEBUFFER, shadow.buffer);
    gl.bindTexture(gl.TEXTURE_2D, above.texture);
    blur({ picture: 0 });
    flat(gl.TRIANGLES, 3);
  }

  function drawFaces(name, look, ratio) {
    const side = sides[name], count = shownFaces(name), map = chosen[name] === CLASSICAL ? 0 : Object.keys(MAPS).indexOf(view.map);
    const pass = (kind, values = {}, number = count) => {
      faces({ kind, ...values });
      gl.drawArraysInstanced(kind === 2 ? gl.POINTS : gl.TRIANGLES, 0, 3, number);
    };
    gl.activeTexture(gl.TEXTURE1);
    gl.bindTexture(gl.TEXTURE_2D, own[name].above.texture);
    gl.activeTexture(gl.TEXTURE0);
    gl.bindTexture(gl.TEXTURE_2D, lut);
    own[name].solid();
    const fresh = chosen[name] === CLASSICAL ? count : side.upto !== null ? side.fresh : props.value.sides[name].state === "running" ? side.faces.fresh : count;
    const high = { step: side.faces.last, depth: deepest(), entropy: hottest() }[view.map] ?? __UNKNOWN__ - 1;
    faces({ ...look, glow: look[name], lut: 0, above: 1, map, high, fresh, hover: side.hover, stripes: 0 });
    faces({ width: 0, opacity: 1, drama: map ? 0.55 : 1, size: 6.5 * ratio, taps: rough() ? 6 : 16 });
    if (view.mode === "shaded" || view.mode === "both") pass(0, { width: view.mode === "both" ? 0.35 * ratio : 0 });
    gl.enable(gl.BLEND);
    if (view.mode === "points") pass(2);
    if (view.mode === "wireframe") { // hidden faces show through faintly
      gl.colorMask(false, false, false, false);
      pass(0);
      gl.colorMask(true, true, true, true);
      gl.depthMask(false);
      gl.depthFunc(gl.GREATER);
      pass(1, { width: 0.3 * ratio, opacity: 0.16, line: look.wire });
      gl.depthFunc(gl.LEQUAL);
      pass(1, { width: 0.45 * ratio, opacity: 1 });
    }
    for (const kind of view.ghost && !side.surface ? ["ghost", "refused"] : []) {
      const { count: number } = side[kind];
      if (!number) continue;
      gl.depthMask(false);
      own[name][kind]();
      faces({ clay: look[kind], line: look[kind], map: 0, hover: -1, fresh: number, stripes: kind === "refused" ? 7 * ratio : 0 });
      pass(0, { opacity: 0.42, drama: 0.35, width: 0.6 * ratio }, number);
    }
    gl.depthMask(true);
  }

  function drawCloud(look, height) {
    cloudBuffer(cloud.changed ? cloud.data : null);
    cloud.changed = false;
    points({ ...look, size: (height / look.tan) * 0.015 });
    gl.drawArrays(gl.POINTS, 0, cloud.count);
  }

  // Candidate vertices, the likeliest last and largest; nothing hides them.
  function drawDots(look, height) {
    const places = new Int16Array(6 * dots.list.length);
    dots.list.forEach(({ cell }, i) => places.set(cell.map((x) => unquantize(fine(x)) * __FARTHEST__), 6 * i));
    dotBuffer(dots.changed ? places : null);
    dots.changed = false;
    gl.disable(gl.DEPTH_TEST);
    gl.enable(gl.BLEND);
    dots.list.forEach(({ p, role }, i) => {
      points({ ...look, cloud: look[role], size: (height / look.tan) * (0.012 + 0.05 * Math.sqrt(p)) });
      gl.drawArrays(gl.POINTS, i, 1);
    });
  }

  function drawSide(name, box, open, colours, ratio) { // open: the visible part of the box
    const [, , width, height] = box, look = { ...lens(width / height), ...colours, ground: lowest };
    gl.viewport(...box);
    gl.scissor(...open);
    gl.disable(gl.BLEND);
    gl.disable(gl.DEPTH_TEST);
    backdrop(look);
    flat(gl.TRIANGLES, 3);
    gl.enable(gl.BLEND);
    gl.bindTexture(gl.TEXTURE_2D, own[name].shadow.texture);
    const opacity = Math.max(0, Math.min(1, camera.pitch * 12 + 0.4)); // from below, the ground would hide the mesh
    floor({ ...look, ground: lowest - 0.004, picture: 0, width: 0.5 * ratio, opacity });
    flat(gl.TRIANGLE_STRIP, 4);
    gl.disable(gl.BLEND);
    gl.enable(gl.DEPTH_TEST);
    drawFaces(name, look, ratio);
    if (cloudShown()) drawCloud(look, height);
    if (name === shown.at(-1) && dots.list.length) drawDots({ ...look, own: look[name] }, height);
  }

  function drawAll() { // false without a visible canvas
    const ratio = software ? (rough() ? 0.5 : 1) : Math.min(window.devicePixelRatio || 1, 2), colours = readColours();
    const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((pixels) => Math.round(pixels * ratio));
    if (!width || !height || gl.isContextLost()) return false;
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    gl.disable(gl.SCISSOR_TEST);
    gl.disable(gl.DEPTH_TEST);
    const low = ground(), moved = low !== lowest;
    lowest = low;
    for (const name of shown) {
      for (const kind of ["ghost", "refused"]) upload(sides[name][kind], own[name][kind]);
      if (upload(meshOf(name), own[name].solid) || moved) lookFromAbove(name, low);
    }
    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
    gl.blendFuncSeparate(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA, gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.depthFunc(gl.LEQUAL);
    gl.clear(gl.DEPTH_BUFFER_BIT);
    gl.enable(gl.SCISSOR_TEST);
    boxes().forEach(([x, y, w, h], i) => {
      const up = canvas.clientHeight - y - h, at = isWiped() ? w * view.wipe : 0;
      const open = !isWiped() ? [x, up, w, h] : i ? [x + at, up, w - at, h] : [x, up, at, h];
      const [box, seen] = [[x, up, w, h], open].map((sides) => sides.map((pixels) => Math.round(pixels * ratio)));
      drawSide(shown[i], box, seen, colours, ratio);
    });
    return true;
  }

  return { software, drawAll };
}

function readColours() { // colours of the style sheet, as uniforms
  const style = getComputedStyle(root), read = (name) => style.getPropertyValue(`--ft-${name}`).trim();
  const hex = (name) => [1, 3, 5].map((i) => parseInt(read(name).slice(i, i + 2), 16) / 255);
  const names = ["clay", "unknown", "line", "wire", "inner", "outer", "grid", "shadow", "cloud", "ghost", "refused"];
  const colours = Object.fromEntries(names.map((name) => [name, hex(`mesh-${name}`)]));
  const [accent, bad] = ["accent", "bad"].map(hex);
  return { ...colours, accent, bad, ...Object.fromEntries(SIDES.map((name) => [name, hex(name === "accelerated" ? "fast" : name)])), strength: Number(read("mesh-strength")) };
}

// ---------------------------------------------------------------- pictures

function boxes() { // [x, y, width, height] of each view in CSS pixels, y from the top
  const { clientWidth: width, clientHeight: height } = canvas, n = shown.length;
  if (isWiped()) return shown.map(() => [0, 0, width, height]);
  if (width >= NARROW) return shown.map((_, i) => [(i * width) / n, 0, width / n, height]);
  if (n < 3) return shown.map((_, i) => [0, (i * height) / n, width, height / n]);
  const half = width / 2, high = height / 2; // two rows of two; with three views, the third has its own row
  return shown.map((_, i) => [(i % 2) * half, Math.floor(i / 2) * high, n === 3 && i === 2 ? width : half, high]);
}

// Without a GPU, leaves the CPU to the run and then to its results: half the resolution until these are complete.
const going = () => renderer.software && root.dataset.state === "running";
const rough = () => renderer.software && (going() || pointers.size > 0 || performance.now() < finesAt);
function ask() {
  if (!renderer || (asked && (!waiting || going()))) return;
  clearTimeout(waiting);
  waiting = 0;
  asked = true;
  const frame = (now) => {
    asked = false;
    waiting = 0;
    paint();
    turn(now);
  };
  if (going() && !pointers.size) waiting = setTimeout(requestAnimationFrame, ROUGH_EVERY, frame);
  else requestAnimationFrame(frame);
}

function putOffFine() {
  if (!renderer?.software) return;
  finesAt = performance.now() + REST;
  clearTimeout(resting);
  resting = setTimeout(ask, REST + 20);
}

function paint() {
  if (!renderer || !renderer.drawAll()) return;
  root.dataset.drawn = Number(root.dataset.drawn || 0) + 1;
  root.dataset.stacked = canvas.clientWidth < NARROW && !isWiped();
  root.dataset.camera = Object.values(camera).map((x) => x.toFixed(3)).join(" ");
}
