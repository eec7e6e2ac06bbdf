// How findings name an element: its tag, id, classes and first words.
() => {
  window.dfName = element => {
    const words = (element.getAttribute('aria-label') || element.innerText || element.value || '').trim();
    const id = element.id ? `#${element.id}` : '';
    const classes = [...element.classList].map(one => `.${one}`).join('');
    return element.tagName.toLowerCase() + id + classes + (words ? ` "${words.slice(0, 40)}"` : '');
  };
}
