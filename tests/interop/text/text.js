// A component with functions of its own: it implements no world of Portcullis.

const words = (text) => text.split(/\s+/).filter(Boolean);

export function count(text) {
  const times = new Map();
  for (const word of words(text)) times.set(word, (times.get(word) ?? 0) + 1);
  return [...times].map(([text, times]) => ({ text, times }));
}

export function first(text) {
  const [word] = words(text);
  if (word === undefined) throw "there is none";
  return word;
}
