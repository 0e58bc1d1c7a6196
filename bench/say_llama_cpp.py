"""llama.cpp from the start of a process to its first token, as `course say` prints its own.

python say_llama_cpp.py THREADS MODEL PROMPT
"""

import sys

from llama_cpp import Llama

threads, model, prompt = sys.argv[1:]
count = int(threads)
llama = Llama(model, n_ctx=512, n_threads=count, n_threads_batch=count, verbose=False)
for piece in llama.create_completion(prompt, max_tokens=1, temperature=0.0, stream=True):
    print(piece["choices"][0]["text"], end="", flush=True)
