// A voice agent of `@openai/agents-realtime`: its default session, a written message, an answer in speech, its history.
import { OpenAIRealtimeWebSocket, RealtimeAgent, RealtimeSession } from '@openai/agents-realtime';

const agent = new RealtimeAgent({ name: 'Helper', instructions: 'Be brief.' });
const transport = new OpenAIRealtimeWebSocket({ useInsecureApiKey: true });
const session = new RealtimeSession(agent, { transport, model: 'qwen3-omni' });
let bytes = 0;

session.on('audio', (event) => (bytes += event.data.byteLength));
session.on('error', (event) => {
  console.error(JSON.stringify(event.error ?? event));
  process.exit(1);
});
await session.connect({ apiKey: process.env.KEY, url: process.env.URL });

const answer = () =>
  new Promise((resolve) => {
    const listen = (event) => {
      if (event.type === 'response.done') {
        transport.off('*', listen);
        resolve(event.response);
      }
    };
    transport.on('*', listen);
  });

let done = answer();
session.sendMessage('Hello, agent');
const first = await done;
done = answer();
session.sendMessage('And again');
await done;
await new Promise((resolve) => setTimeout(resolve, 200));

const history = session.history.map((item) => ({
  role: item.role,
  text: item.content?.map((part) => part.text ?? part.transcript).join(''),
}));
session.close();
console.log(JSON.stringify({ status: first.status, history, bytes }));
process.exit(0);
