// Holds Kubernetes objects against the schemas and CEL rules of their projects: unknown fields, wrong types, missing ones,
// and every rule that needs no earlier object.
// usage: node queue_export.mjs SCHEMAS FILE...   exit code 1 where one is refused, with the reason
import fs from 'node:fs';
import path from 'node:path';
import Ajv from 'ajv';
import YAML from 'yaml';
import { run } from '@bufbuild/cel';
import { strings } from '@bufbuild/cel/ext';

const [folder, ...files] = process.argv.slice(2);

// A CRD's schema as JSON Schema that lets no unknown field pass.
function strict(schema) {
  if (Array.isArray(schema)) return schema.map(strict);
  if (schema === null || typeof schema !== 'object') return schema;
  const out = {};
  for (const [key, value] of Object.entries(schema)) {
    if (key.startsWith('x-kubernetes') || key === 'format' || key === 'default') continue;
    if (key === 'properties') out[key] = Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, strict(inner)]));
    else out[key] = key === 'enum' ? value : strict(value);
  }
  if (schema['x-kubernetes-int-or-string']) {
    delete out.anyOf;
    out.type = ['integer', 'string'];
  }
  const isOpen = schema['x-kubernetes-preserve-unknown-fields'] === true || out.additionalProperties !== undefined;
  if (out.properties && !isOpen) out.additionalProperties = false;
  return out;
}

const kinds = new Map();
for (const name of fs.readdirSync(folder).filter((entry) => entry.endsWith('.json'))) {
  const crd = JSON.parse(fs.readFileSync(path.join(folder, name), 'utf8'));
  if (crd.schema) kinds.set(`${crd.group}/${crd.version} ${crd.kind}`, { raw: crd.schema });
}

// Compiled when it is first needed: schemas of jobs refer to others that queues do not need.
function checkOf(kind) {
  if (!kind.check) {
    const schema = strict(kind.raw);
    schema.properties.metadata = { type: 'object', required: ['name'] };
    kind.check = new Ajv({ strict: false, allErrors: true }).compile(schema);
  }
  return kind.check;
}

// CEL's integers are BigInt here.
const forCel = (value) => {
  if (typeof value === 'number' && Number.isInteger(value)) return BigInt(value);
  if (Array.isArray(value)) return value.map(forCel);
  if (value && typeof value === 'object') return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, forCel(inner)]));
  return value;
};

function checkRules(schema, value, at, errors) {
  let count = 0;
  if (!schema || value === undefined || value === null) return count;
  for (const rule of schema['x-kubernetes-validations'] ?? []) {
    if (rule.rule.includes('oldSelf')) continue; // about changes
    count++;
    let result;
    try { result = run(rule.rule, { self: forCel(value) }, { funcs: strings }); } catch (error) { result = error; }
    if (result !== true) errors.push(`${at}: ${rule.message ?? rule.rule} (${result?.message ?? result})`);
  }
  if (Array.isArray(value)) value.forEach((item, index) => { count += checkRules(schema.items, item, `${at}/${index}`, errors); });
  else if (typeof value === 'object')
    for (const [key, inner] of Object.entries(value)) {
      const open = typeof schema.additionalProperties === 'object' ? schema.additionalProperties : undefined;
      count += checkRules(schema.properties?.[key] ?? open, inner, `${at}/${key}`, errors);
    }
  return count;
}

let refused = 0, objects = 0, rules = 0;
for (const file of files)
  for (const document of YAML.parseAllDocuments(fs.readFileSync(file, 'utf8')).map((one) => one.toJS()).filter(Boolean)) {
    const id = `${document.apiVersion} ${document.kind}`, kind = kinds.get(id), errors = [];
    objects++;
    if (!kind) errors.push('no schema of this kind');
    else {
      if (!checkOf(kind)(document)) for (const error of kind.check.errors) errors.push(`${error.instancePath} ${error.message} ${error.params.additionalProperty ?? ''}`);
      rules += checkRules(kind.raw, document, '', errors);
    }
    for (const error of errors) console.log(`${path.basename(file)}: ${id} ${document.metadata?.name}: ${error}`);
    refused += errors.length > 0;
  }
console.log(`${objects} objects, ${rules} rules, ${refused} refused`);
process.exit(refused > 0 || objects === 0 ? 1 : 0);
