#!/usr/bin/env python3
"""usage: make_adapter.py MODEL_DIR OUT SEED RANK [all]

Writes a PEFT folder with drawn factors for the q, v and down projections of a Llama, or for all its projections."""
import json
import os
import random
import struct
import sys

model, out, seed, rank = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with open(model + '/config.json') as file:
    config = json.load(file)
hidden, ffn = config['hidden_size'], config['intermediate_size']
kv = hidden // config['num_attention_heads'] * config['num_key_value_heads']
modules = {'self_attn.q_proj': (hidden, hidden), 'self_attn.v_proj': (hidden, kv), 'mlp.down_proj': (ffn, hidden)}
if 'all' in sys.argv[5:]:
    modules.update({'self_attn.k_proj': (hidden, kv), 'self_attn.o_proj': (hidden, hidden),
                    'mlp.gate_proj': (hidden, ffn), 'mlp.up_proj': (hidden, ffn)})
random.seed(seed)
drawn = struct.pack('<8191f', *(random.gauss(0, 0.3) for _ in range(8191)))
header, pieces, size = {}, [], 0


def add(name, rows, cols):
    """A tensor: the drawn values again and again, from a drawn one on."""
    global size
    first, count = 4 * random.randrange(8191), 4 * rows * cols
    header[name] = {'dtype': 'F32', 'shape': [rows, cols], 'data_offsets': [size, size + count]}
    pieces.append((drawn[first:] + drawn * (count // len(drawn) + 1))[:count])
    size += count


for layer in range(config['num_hidden_layers']):
    for module, (inputs, outputs) in modules.items():
        prefix = 'base_model.model.model.layers.%d.%s.lora_' % (layer, module)
        add(prefix + 'A.weight', rank, inputs)
        add(prefix + 'B.weight', outputs, rank)
os.makedirs(out, exist_ok=True)
text = json.dumps(header).encode()
text += b' ' * (-len(text) % 8)
with open(out + '/adapter_model.safetensors', 'wb') as file:
    file.write(struct.pack('<Q', len(text)) + text + b''.join(pieces))
with open(out + '/adapter_config.json', 'w') as file:
    json.dump({'peft_type': 'LORA', 'r': rank, 'lora_alpha': 8, 'base_model_name_or_path': model,
               'target_modules': [name.split('.')[1] for name in modules]}, file)
