// The realtime client of the `openai` package: one turn in text, one committed turn of sound that is answered in speech.
import OpenAI from 'openai';
import { OpenAIRealtimeWS } from 'openai/realtime/ws';

const client = new OpenAI({ apiKey: process.env.KEY, baseURL: process.env.BASE });
const rt = new OpenAIRealtimeWS({ model: 'qwen3-omni' }, client);
const events = [];
const waiting = [];

rt.on('event', (event) => {
  events.push(event);
  for (const one of waiting.filter((one) => one.type === event.type)) {
    waiting.splice(waiting.indexOf(one), 1);
    one.resolve(event);
  }
});
rt.on('error', (error) => {
  console.error(error);
  process.exit(1);
});
const until = (type) => new Promise((resolve) => waiting.push({ type, resolve }));

await until('session.created');
let update = until('session.updated');
rt.send({
  type: 'session.update',
  session: { type: 'realtime', output_modalities: ['text'], audio: { input: { turn_detection: null } } },
});
await update;

let done = until('response.done');
rt.send({
  type: 'conversation.item.create',
  item: { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Hello from Node' }] },
});
rt.send({ type: 'response.create' });
const text = (await done).response.output[0].content[0].text;

done = until('response.done');
rt.send({ type: 'input_audio_buffer.append', audio: Buffer.alloc(48_000).toString('base64') });
rt.send({ type: 'input_audio_buffer.commit' });
rt.send({ type: 'response.create', response: { output_modalities: ['audio'] } });
const transcript = (await done).response.output[0].content[0].transcript;
const bytes = events
  .filter((event) => event.type === 'response.output_audio.delta')
  .reduce((sum, event) => sum + Buffer.from(event.delta, 'base64').length, 0);

rt.close();
console.log(JSON.stringify({ text, transcript, bytes }));
