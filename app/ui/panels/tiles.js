// Buttons with small pictures of points. dots: [x, y, red, green, blue] per point, as base64
function paintDots(canvas, text, diameter) {
  const dots = bytes(text), pen = canvas.getContext("2d");
  canvas.width = canvas.height = __SIDE__;
  for (let i = 0; i < dots.length; i += 5) {
    pen.fillStyle = `rgb(${dots[i + 2]} ${dots[i + 3]} ${dots[i + 4]})`;
    pen.beginPath();
    pen.arc(dots[i], dots[i + 1], diameter / 2, 0, 7);
    pen.fill();
  }
}

function tile(label, more) {
  const button = node("button", "", { type: "button", ...more }), canvas = node("canvas");
  canvas.setAttribute("aria-hidden", "true");
  button.append(canvas, node("span", label));
  return button;
}
