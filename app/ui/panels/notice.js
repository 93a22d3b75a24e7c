// Notices for the user: unknown words, the place in the queue, errors and what to do about them.
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
