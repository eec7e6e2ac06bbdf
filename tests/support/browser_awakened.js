// What became of hostile text in this page (`browser_rows.HOSTILE`): sentences, none when it stayed text.
() => {
  const found = [];
  if ('hostile' in window) found.push(`a script of it ran: ${window.hostile}`);
  for (const one of document.querySelectorAll('img[src="x"], [onerror], svg[onload]'))
    found.push(`it became an element: ${one.outerHTML.slice(0, 80)}`);
  for (const one of document.querySelectorAll('script'))
    if (one.textContent.includes('hostile')) found.push(`it became a script: ${one.textContent.slice(0, 80)}`);
  for (const one of document.querySelectorAll('[href], [src], [action], [formaction]'))
    for (const name of ['href', 'src', 'action', 'formaction'])
      if (/^\s*javascript:/i.test(one.getAttribute(name) ?? '')) found.push(`it became an address: ${one.outerHTML.slice(0, 80)}`);

  // A mark that turns the writing round must not reach beyond the text that it came with; a <pre> holds nothing else.
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const holder = texts.currentNode.parentElement;
    if (!texts.currentNode.data.includes('\u202e') || holder.closest('script, style, textarea')) continue;
    if (!holder.closest('bdi, pre')) found.push(`it turns round what follows: ${holder.outerHTML.slice(0, 80)}`);
  }
  return found;
}
