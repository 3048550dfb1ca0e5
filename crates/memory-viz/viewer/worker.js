// The worker: unpacks the data, answers requests for pictures and facts. One message in, one message out.
'use strict';

let names, engines, textOfFrame, look;

const answers = {
  open(request) {
    const began = performance.now();
    names = unpack(request.data);
    const unpacked = performance.now();
    engines = names.devices.map(device => new Engine(device));
    textOfFrame = Array.from(names.frames.name, (_, frame) => frameText(frame, request.texts).toLowerCase());
    look = new Look(names.stacks.length, request.dark);
    return {
      stacks: names.stacks, frames: names.frames, times: [unpacked - began, performance.now() - unpacked],
      devices: engines.map(engine => ({
        entries: engine.entries.count, lives: engine.lives.count, peak: engine.peak, most: engine.live[engine.peak],
        mostReserved: engine.reserved.reduce((most, one) => Math.max(most, one), 0), streams: engine.streams,
        first: engine.entries.time[0] ?? 0, last: engine.entries.time[engine.entries.count - 1] ?? 0,
        segments: engine.segments, colours: Array.from(look.number),
      })),
    };
  },
  render(request) {
    const began = performance.now();
    if (look.dark !== request.dark) {
      const { matches } = look;
      look = new Look(names.stacks.length, request.dark);
      look.matches = matches;
    }
    const picture = engines[request.device].render(request, look);
    picture.took = performance.now() - began;
    return picture;
  },
  pick: request => engines[request.device].pick(request.moment, request.height),
  holders: request => engines[request.device].holders(request.moment, names.stacks.length, 500),
  // Which stacks have a frame with the text, or are the one asked for.
  search(request) {
    const text = request.text.toLowerCase();
    if (request.stack === undefined && text === '') {
      look.matches = null;
      return { stacks: -1 };
    }
    const frames = textOfFrame.map(frame => frame.includes(text));
    const match = (stack, index) => request.stack === undefined ? stack.some(frame => frames[frame]) : index === request.stack;
    look.matches = Uint8Array.from(names.stacks, (stack, index) => match(stack, index) ? 1 : 0);
    return { stacks: look.matches.reduce((sum, one) => sum + one, 0), matches: look.matches };
  },
};

function frameText(frame, texts) {
  return `${texts[names.frames.file[frame]]}:${names.frames.line[frame]}:${texts[names.frames.name[frame]]}`;
}

onmessage = ({ data: request }) => {
  try {
    const answer = answers[request.ask](request);
    postMessage({ id: request.id, answer }, answer && answer.pixels ? [answer.pixels.buffer] : []);
  } catch (error) {
    postMessage({ id: request.id, error: String(error && error.stack || error) });
  }
};
