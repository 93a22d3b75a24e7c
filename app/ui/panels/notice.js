// Sentences for the person: unknown words, a place in the line, a mistake and the way out.
const box = element.querySelector(".ft-notices");

function draw() {
  const items = (props.value || []).map((notice) => {
    const line = document.createElement("p");
    line.dataset.kind = notice.kind;
    line.textContent = notice.text;
    return line;
  });
  box.replaceChildren(...items);
}

watch("value", draw);
draw();
