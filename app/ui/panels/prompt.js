// Writes into the prompt as a person would: Gradio hears of it, and the model's words are looked up.
function promptField(id) {
  return document.querySelector(`#${id} textarea, #${id} input`);
}

function writePrompt(id, text) {
  const field = promptField(id);
  if (!field || field.disabled) return;
  Object.getOwnPropertyDescriptor(Object.getPrototypeOf(field), "value").set.call(field, text);
  field.dispatchEvent(new Event("input", { bubbles: true }));
}
