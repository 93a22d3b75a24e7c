// What the charts share. It is inserted into their scripts in place of __CHART__.
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const numbers = (text, Kind) => new Kind(bytes(text).buffer);
const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;

// A cleared canvas at screen resolution, with a pen that works in CSS pixels, and the page's colours.
function sheet(canvas) {
  const box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
  canvas.width = Math.round(box.width * ratio);
  canvas.height = Math.round(box.height * ratio);
  pen.scale(ratio, ratio);
  pen.font = '11px "IBM Plex Sans", system-ui, sans-serif';
  pen.textBaseline = "middle";
  const style = getComputedStyle(canvas), read = (name) => style.getPropertyValue(`--ft-${name}`).trim();
  const names = ["text", "muted", "line", "line-strong", "raised", "plain", "fast", "accent"];
  return { pen, width: box.width, height: box.height, ...Object.fromEntries(names.map((n) => [n, read(n)])) };
}

function write(pen, text, x, y, colour, align = "left") {
  pen.fillStyle = colour;
  pen.textAlign = align;
  pen.fillText(text, x, y);
}

// A line through points [x, y]; null is a gap.
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

// Draws again whenever a canvas changes its size or the page its colours.
function follow(canvases, draw) {
  const watcher = new ResizeObserver(draw);
  canvases.forEach((canvas) => watcher.observe(canvas));
  new MutationObserver(draw).observe(document.body, { attributes: true, attributeFilter: ["class"] });
}

function swatch(colour, text, kind = "") {
  const item = document.createElement("span"), mark = document.createElement("i");
  mark.style.setProperty("--mark", colour);
  mark.className = kind;
  item.append(mark, text);
  return item;
}
