// Shared by the charts; included before their scripts.
const numbers = (text, Kind) => new Kind(bytes(text).buffer);
const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;
const FONT = '11px "IBM Plex Sans", system-ui, sans-serif';
const COLOURS = ["page", "text", "muted", "line", "line-strong", "raised", "surface", "plain", "fast", "fast-text", "accent", "good", "bad"];

// The page's colours in the current theme.
const coloursOf = (style) => Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--ft-${name}`).trim()]));

// Surface of a chart: a pen in CSS pixels, the size, the colours.
function paper(pen, width, height, style) {
  pen.font = FONT;
  pen.textBaseline = "middle";
  return { pen, width, height, ...coloursOf(style) };
}

// Clears a canvas and sets it to screen resolution.
function sheet(canvas) {
  const box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
  canvas.width = Math.round(box.width * ratio);
  canvas.height = Math.round(box.height * ratio);
  pen.scale(ratio, ratio);
  return paper(pen, box.width, box.height, getComputedStyle(canvas));
}

function write(pen, text, x, y, colour, align = "left") {
  pen.fillStyle = colour;
  pen.textAlign = align;
  pen.fillText(text, x, y);
}

// A line through points [x, y]; null makes a gap.
function trail(pen, points, colour, { width = 1.25, dash = [] } = {}) {
  pen.beginPath();
  let down = false;
  for (const point of points) {
    if (point) pen[down ? "lineTo" : "moveTo"](...point);
    down = Boolean(point);
  }
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.setLineDash(dash);
  pen.stroke();
  pen.setLineDash([]);
}

// About `count` round numbers from low to high.
function ticksOf(low, high, count = 5) {
  const rough = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough * 0.999), found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) found.push(+at.toPrecision(12));
  return found;
}

const round = (number, digits = 3) => String(+number.toFixed(digits)).replace("-", "−");

// Draws axes in a box {left, right, top, bottom}, with titles, ticks and grid lines. x and y: {range, title, ticks, text}.
// Returns functions that map values to pixels. Default ticks are round numbers.
function axes(page, box, x, y) {
  const { pen } = page, [x0, x1] = x.range, [y0, y1] = y.range;
  const clamp = (value, low, high) => Math.min(Math.max(low, high), Math.max(Math.min(low, high), value));
  const across = (value) => box.left + ((clamp(value, x0, x1) - x0) / (x1 - x0 || 1)) * (box.right - box.left);
  const up = (value) => box.bottom - ((clamp(value, y0, y1) - y0) / (y1 - y0 || 1)) * (box.bottom - box.top);
  for (const tick of y.ticks || ticksOf(...y.range, Math.max(2, Math.round((box.bottom - box.top) / 44)))) {
    trail(pen, [[box.left, up(tick)], [box.right, up(tick)]], page.line, { width: 1 });
    write(pen, y.text ? y.text(tick) : round(tick), box.left - 6, up(tick), page.muted, "right");
  }
  trail(pen, [[box.left, box.bottom], [box.right, box.bottom]], page["line-strong"], { width: 1 });
  for (const tick of x.ticks || ticksOf(...x.range, Math.max(3, Math.round((box.right - box.left) / 90)))) {
    trail(pen, [[across(tick), box.bottom], [across(tick), box.bottom + 4]], page["line-strong"], { width: 1 });
    write(pen, x.text ? x.text(tick) : round(tick), across(tick), box.bottom + 12, page.muted, "center");
  }
  if (y.title) write(pen, y.title, 0, box.top - 12, page.text);
  if (x.title) write(pen, x.title, box.right, box.bottom + 27, page.text, "right");
  return [across, up];
}

// Redraws when a canvas changes its size or the page its colours.
function follow(canvases, draw) {
  const watcher = new ResizeObserver(draw);
  canvases.forEach((canvas) => watcher.observe(canvas));
  new MutationObserver(draw).observe(document.body, { attributes: true, attributeFilter: ["class"] });
}

// Makes a canvas accessible by keyboard: arrows move between entries, Home and End go to the ends, Escape leaves, Enter acts.
// reading: {count(), at(), go(index or null), say(index), act(index)}
function readable(canvas, label, reading) {
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "slider");
  canvas.setAttribute("aria-roledescription", "chart");
  const announce = () => {
    const at = reading.at(), count = reading.count();
    canvas.setAttribute("aria-label", label());
    canvas.setAttribute("aria-valuemin", 0);
    canvas.setAttribute("aria-valuemax", count);
    canvas.setAttribute("aria-valuenow", at === null ? 0 : at + 1);
    canvas.setAttribute("aria-valuetext", at === null ? label() : reading.say(at));
  };
  canvas.addEventListener("keydown", (event) => {
    const count = reading.count(), at = reading.at(), far = event.shiftKey ? 10 : 1;
    const to = {
      ArrowRight: at === null ? 0 : Math.min(count - 1, at + far), ArrowUp: at === null ? 0 : Math.min(count - 1, at + far),
      ArrowLeft: at === null ? count - 1 : Math.max(0, at - far), ArrowDown: at === null ? count - 1 : Math.max(0, at - far),
      Home: 0, End: count - 1, Escape: null,
    }[event.key];
    if (event.key === "Enter" && at !== null && reading.act) reading.act(at);
    else if (to === undefined || !count) return;
    else reading.go(to);
    event.preventDefault();
    announce();
  });
  announce();
  return announce;
}
