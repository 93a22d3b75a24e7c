// Settings that another panel of this tab asks for.
window.addEventListener("foretoken:want", ({ detail }) => {
  if (detail.panel !== __OWN__) return;
  props.value = detail.value;
  trigger("input");
});
