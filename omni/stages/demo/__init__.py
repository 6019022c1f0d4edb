"""Small real models on a CPU, all from packages: enough to try the server, not to judge what an omni model can do.

preprocess hears (Moonshine behind Silero's voice detector) and sees (EfficientNet-Lite0), and writes down what it heard
and saw as a prompt; the thinker is SmolLM2-135M-Instruct on llama.cpp; the talker and code2wav are the two halves of
Hibari's voice. English only, and often wrong. `docs/demo.md` has sources, licences and figures.
"""
