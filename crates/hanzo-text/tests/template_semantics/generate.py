"""Renders the templates below with Python's Jinja2, as chat templates are rendered, and writes what comes out.

    pip install jinja2==3.1.6; python generate.py > cases.json

The environment is that of transformers: an immutable sandbox with trim_blocks, lstrip_blocks, loop controls, `tojson`
without HTML escapes, `raise_exception`.
"""

import json

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

CONTEXT = {
    "s": "Hello, World",
    "u": "naïve 日本語 🎉 ß",
    "ws": "  a\tb \n c  ",
    "lines": "one\ntwo\r\nthree\n\nfive\n",
    "empty": "",
    "n": 7,
    "neg": -3,
    "f": 2.5,
    "big": 12345678901234567890,
    "tiny": 1e-7,
    "huge": 1e22,
    "yes": True,
    "no": False,
    "nothing": None,
    "xs": [3, 1, 2],
    "words": ["b", "A", "c", "B"],
    "nested": [[1, "two"], {"k": None, "q": "it's \"quoted\"\n\\"}],
    "d": {"b": 1, "a": "x", "C": [True, None, 1.0], "items": "shadowed", "pop": 1},
    "people": [
        {"name": "Ann", "age": 31, "tags": {"x": 1}},
        {"name": "bob", "age": 25, "tags": {"x": 2}},
        {"name": "Cid", "age": 31, "tags": {"x": 3}},
    ],
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yo", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
    ],
    "html": "<a href=\"x\">T & C's</a>",
}

CASES = r'''
{{ s }}|{{ u }}|{{ n }}|{{ f }}|{{ big }}|{{ tiny }}|{{ huge }}|{{ yes }}|{{ no }}|{{ nothing }}|{{ missing }}|
{{ xs }} {{ nested }} {{ d }} {{ [] }} {{ {} }} {{ () }} {{ (1,) }} {{ (1, 'a') }}
{{ [1.0, -0.0, 1e16, 1e15, 123456789.125, 0.1, 1e-4, 1e-5, 1.5e300, 100000000000000000000.0] }}
{{ ["it's", 'say "x"', "both ' and \"", "tab\t", "nl\n", "\\", "\x7f", "\u00a0", "\u200b", "é", "\U0001F389", "\u0301"] }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 // -2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 4 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}
{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ 2 * 3 ** 2 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ 1 - 1 - 1 }} {{ - - 3 }} {{ +3 }} {{ -n }}
{{ 1 ~ 2 }} {{ 'a' ~ 1 ~ (2 + 3) }} {{ 1 ~ 2 ~ nothing ~ missing ~ yes ~ [1] }}
{{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ [1] * 2 }} {{ 'a' * -1 }} {{ 'a' * yes }} {{ (1, 2) * 2 }}
{{ 1 == 1.0 }} {{ 1 == true }} {{ '1' == 1 }} {{ none == false }} {{ [1] == [1.0] }} {{ (1,) == [1] }} {{ {'a': 1} == {'a': 1} }} {{ missing == missing2 }} {{ missing == none }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 < 2 > 1 }} {{ 'a' < 'b' }} {{ 'B' < 'a' }} {{ [1, 2] < [1, 3] }} {{ 1 <= 1.0 }} {{ true > false }}
{{ 'a' in 'abc' }} {{ 'z' not in 'abc' }} {{ 1 in [1, 2] }} {{ 'a' in d }} {{ 'z' in d }} {{ not 'a' in d }} {{ 1 in (1,) }} {{ missing in [1] }} {{ 'x' in missing }}
{{ true and 1 }} {{ 0 and 1 }} {{ '' or 'x' }} {{ 0 or none }} {{ not 1 }} {{ not not 'a' }} {{ 1 and 2 or 3 }} {{ missing or 'default' }} {{ [] or {} or 'e' }}
{{ 'a' if yes else 'b' }} {{ 'a' if no else 'b' }} {{ 'a' if no }} {{ 1 if no else 2 if no else 3 }} {{ ('x' if no) is defined }}
{{ s[0] }} {{ s[-1] }} {{ s[1:4] }} {{ s[:-3] }} {{ s[::2] }} {{ s[::-1] }} {{ s[-4:] }} {{ s[5:2] }} {{ s[100:] }} {{ u[2:8] }} {{ u[-1] }} {{ s[:100] }} {{ s[-100:2] }} {{ s[4:1:-1] }} {{ s[-1:-5:-2] }}
{{ xs[0] }} {{ xs[-1] }} {{ xs[1:] }} {{ xs[::-1] }} {{ xs[:1] + [9] }} {{ xs[5:] }} {{ xs[5] }} {{ (1,2,3)[1:] }} {{ xs[::2] }} {{ xs[-2:] }} {{ xs[none:2] }}
{{ d.a }} {{ d['a'] }} {{ d.missing }} {{ d['missing'] }} {{ d['items'] }} {{ d.C[2] }} {{ d.C.2 }} {{ d.get('a') }} {{ d.get('z') }} {{ d.get('z', 5) }} {{ messages[1].tool_calls[0].function.name }} {{ messages[1]['tool_calls'][0]['function']['arguments'] }}
{{ d.items is defined }} {{ d.items is callable }} {% if d.items %}truthy{% endif %} {{ xs.items is defined }} {{ d.pop is defined }} {{ d.pop }}|
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {{ d.keys() | list }} {{ d.values() | list }} {{ d.items() | list }} {{ d.items() }} {{ d.keys() }}
{% for k in d %}{{ k }},{% endfor %} {% for c in 'héy' %}{{ c }}.{% endfor %} {% for x in missing %}x{% else %}none{% endfor %}
{% for x in xs %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.depth }}/{{ loop.previtem }}/{{ loop.nextitem }}/{{ loop.cycle('o', 'e') }};{% endfor %}
{% for x in xs if x > 1 %}{{ loop.index }}:{{ x }} {% else %}no{% endfor %}|{% for x in xs if x > 10 %}{{ x }}{% else %}no{% endfor %}
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for a, b in [[1, 2], (3, 4)] %}{{ a }}-{{ b }} {% endfor %}{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for x in [1,1,2] %}{{ loop.changed(x) }} {% endfor %}
{% for row in [[1,[2,[3]]]] recursive %}{% for i in row %}{% if i is iterable %}({{ loop.depth }}){% else %}{{ i }}{% endif %}{% endfor %}{% endfor %}
{% for item in [{'v': 1, 'c': [{'v': 2, 'c': [{'v': 3}]}]}, {'v': 4}] recursive %}<{{ item.v }}@{{ loop.depth }}{% if item.c %}{{ loop(item.c) }}{% endif %}>{% endfor %}
{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}
{% set ns = namespace(x=1, y='a') %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }} {{ ns.y }} {{ ns.z }} {{ ns.z is defined }}
{% if no %}{% set v = 1 %}{% else %}{% set v = 2 %}{% endif %}{{ v }}
{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set c = 1, 2 %}{{ c }} {% set (e, f2) = [3, 4] %}{{ e }}{{ f2 }}
{% set block %}captured {{ n }}{% endset %}[{{ block }}] {% set up | upper | trim %}  loud {{ n }} {% endset %}[{{ up }}]
{% with %}{% set w = 1 %}{{ w }}{% endwith %}{{ w }} {% with a=1, b=2 %}{{ a + b }}{% endwith %} {% with n=n+1 %}{{ n }}{% endwith %}{{ n }}
{% macro m(a, b='d', c=none) %}{{ a }}|{{ b }}|{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 2) }} {{ m(c=3, a=1) }} {{ m() }} {{ m('x', c=[1]) }}
{% macro m(a, b=a ~ '!') %}{{ b }}{% endmacro %}{{ m('q') }} {{ m.name }}
{% macro m() %}{{ varargs }} {{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}
{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}body {{ n }}{% endcall %}
{% macro m() %}<{{ caller('q', 2) }}>{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}
{% macro fact(k) %}{% if k <= 1 %}1{% else %}{{ k * (fact(k - 1) | int) }}{% endif %}{% endmacro %}{{ fact(10) }}
{% macro outer() %}{{ late }}{% endmacro %}{% set late = 'bound late' %}{{ outer() }}
{% macro a() %}{% set inner = 1 %}{{ inner }}{% endmacro %}{{ a() }}{{ inner }}
{% for i in [1,2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}
{% filter upper %}abc {{ n }} {{ s }}{% endfilter %} {% filter replace('a', 'b') | trim %}  banana {% endfilter %}
{% raw %}{{ not }} {% evaluated %}{% endraw %}|{%- raw -%}  x  {%- endraw -%}  |
{# comment {{ x }} #}a{#- strip -#} b {#+ keep #} c
{{ "a" "b" 'c' }} {{ 'tab\tnl\\n\x41\u00e9\101\q' }} {{ "\'" }} {{ '\"' }}
{{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ 1e3 }} {{ 1.5e-3 }} {{ 10.0 }} {{ 3.14 }}
{{ true }} {{ True }} {{ none }} {{ None }} {{ false }}
{{ 'abc'.upper() }} {{ 'ABC'.lower() }} {{ 'aBC dEf'.title() }} {{ "they're bill's".title() }} {{ 'aBC'.capitalize() }} {{ 'aBc'.swapcase() }} {{ u.upper() }}
{{ ws.strip() }}|{{ ws.lstrip() }}|{{ ws.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcab'.lstrip('ba') }}|{{ 'abcab'.rstrip('ba') }}|{{ '\x1c a\x1f'.strip() }}|
{{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ ws.split() }} {{ ' a b c '.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'abc'.split('x') }}
{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ 'a\x0bb\x85c\u2028d'.splitlines() }} {{ ''.splitlines() }}
{{ s.startswith('Hell') }} {{ s.endswith('ld') }} {{ s.startswith(('a', 'H')) }} {{ s.startswith('W', 7) }} {{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('z') }} {{ s.index('W') }} {{ s.count('l') }} {{ u.find('本') }} {{ ''.count('') }} {{ 'aaa'.count('aa') }}
{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ 'abc'.replace('', '-') }} {{ ','.join(['a', 'b']) }} {{ ''.join([]) }}
{{ 'ab'.center(7) }}|{{ 'ab'.center(6, '*') }}|{{ 'abc'.center(6) }}|{{ 'ab'.ljust(5) }}|{{ 'ab'.rjust(5, '.') }}|{{ '42'.zfill(5) }}|{{ '-42'.zfill(5) }}|
{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('-') }} {{ 'abc'.rpartition('-') }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }}
{{ 'abc'.isalpha() }} {{ 'ab1'.isalnum() }} {{ '12'.isdigit() }} {{ ''.isdigit() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab1'.islower() }} {{ '12'.isupper() }} {{ 'Ab Cd'.istitle() }} {{ 'é'.isascii() }} {{ '٣'.isdigit() }}
{{ '{} and {}'.format(1, 'x') }} {{ '{0}{1}{0}'.format('a', 'b') }} {{ '{name}!'.format(name='N') }} {{ '{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}|{:x}|{:+d}|{:%}'.format('a', 'b', 'c', 42, 3.14159, 1234567, 255, 5, 0.5) }} {{ '{{}} {!r}'.format('q') }} {{ '{:*^9}'.format('mid') }} {{ '{:e} {:g} {:g} {:g}'.format(12345.678, 0.00001, 1000000, 1234567.0) }} {{ '{:{w}}|'.format('x', w=4) }} {{ '{}'.format([1, 'a']) }} {{ '{}'.format(none) }}
{{ '%s-%d-%.2f-%5s|%-5s|%05d|%x|%r|%%' % ('a', 3, 2.5, 'b', 'c', 42, 255, 'q') }} {{ '%s' % 'x' }} {{ '%s' % [1, 2] }} {{ '%(a)s/%(b)03d' % {'a': 1, 'b': 2} }} {{ '%s' % d }} {{ '%d' % 3.99 }} {{ '%c%c' % (65, 'b') }} {{ '%+d % d' % (1, 2) }} {{ '%10.3e|' % 12345.678 }} {{ '%g' % 0.0001 }} {{ '%i' % true }}
{{ '%s %s' | format('a', 1) }} {{ '%(x)s' | format(x=3) }}
{{ s | upper }} {{ s | lower }} {{ 'hello world' | title }} {{ "it's a foo-bar (baz)" | title }} {{ 'HELLO' | capitalize }} {{ ws | trim }}| {{ 'xxaxx' | trim('x') }} {{ 5 | string }} {{ nothing | string }} {{ missing | upper }}| {{ n | upper }}
{{ s | length }} {{ u | length }} {{ xs | count }} {{ d | length }} {{ missing | length }} {{ '' | length }} {{ d.items() | length }}
{{ missing | default('x') }} {{ nothing | default('x') }} {{ nothing | default('x', true) }} {{ '' | d('y', boolean=true) }} {{ 0 | default(5) }} {{ missing.a | default('z') if no else 'ok' }} {{ d.zz | default }}|
{{ xs | join(', ') }} {{ xs | join }} {{ people | join('/', attribute='name') }} {{ 'abc' | join('-') }} {{ [1, none, true, 'a', 2.0] | join(' ') }} {{ d | join(',') }}
{{ xs | first }} {{ xs | last }} {{ [] | first }}| {{ 'abc' | first }} {{ 'abc' | last }} {{ xs | sort | first }} {{ d | first }}
{{ xs | sort }} {{ xs | sort(reverse=true) }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ people | sort(attribute='age') | map(attribute='name') | list }} {{ people | sort(attribute='age,name', reverse=true) | map(attribute='name') | list }} {{ xs | reverse | list }} {{ 'abc' | reverse }}
{{ d | dictsort }} {{ d | dictsort(true) }} {{ {'a': 2, 'b': 1} | dictsort(by='value') }} {{ {'a': 2, 'b': 1} | dictsort(reverse=true) }} {{ {2: 1, 1: 2} | dictsort }}
{{ words | unique | list }} {{ words | unique(true) | list }} {{ [1, 1.0, 2, true] | unique | list }} {{ people | unique(attribute='age') | map(attribute='name') | list }}
{{ xs | min }} {{ xs | max }} {{ words | min }} {{ words | max }} {{ people | max(attribute='age') }} {{ [] | min }}| {{ xs | sum }} {{ people | sum(attribute='age') }} {{ [1.5, 2] | sum(start=10) }}
{{ people | map(attribute='tags.x') | list }} {{ people | map(attribute='zip', default='none') | list }} {{ words | map('lower') | join(',') }} {{ words | map('replace', 'b', 'x') | list }} {{ [[1, 2], [3]] | map('join', '-') | list }} {{ xs | map('string') | list }}
{{ people | selectattr('age', 'equalto', 31) | map(attribute='name') | list }} {{ people | rejectattr('age', '==', 31) | list | length }} {{ people | selectattr('tags.x', 'gt', 1) | list | length }} {{ people | selectattr('zip', 'defined') | list }} {{ people | selectattr('name') | list | length }} {{ people | selectattr('name', 'in', ['Ann', 'Cid']) | map(attribute='age') | sum }}
{{ xs | select('odd') | list }} {{ xs | reject('odd') | list }} {{ [0, 1, '', 'a', none] | select | list }} {{ [0, 1, ''] | reject | list }} {{ xs | select('>', 1) | list }} {{ [none, 1] | select('none') | list }} {{ words | select('upper') | list }}
{% for g in people | groupby('age') %}{{ g.0 }}: {{ g[1] | map(attribute='name') | join(',') }}; {% endfor %} {{ people | groupby('age') | map('first') | list }}
{% for b in [1,2,3,4,5] | batch(2) %}{{ b }}{% endfor %} {% for b in [1,2,3] | batch(2, 'x') %}{{ b }}{% endfor %} {% for c in [1,2,3,4,5] | slice(3) %}{{ c }}{% endfor %} {% for c in [1,2,3,4] | slice(3, 'x') %}{{ c }}{% endfor %}
{{ -5 | abs }} {{ (-5) | abs }} {{ 2.567 | round(2) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 7 | round }} {{ 2.1 | round(0, 'ceil') }} {{ 2.9 | round(method='floor') }} {{ 1234 | round(-2) }} {{ 0.125 | round(2) }} {{ 7 | round(2) }}
{{ '42' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ '0x1f' | int(base=16) }} {{ 3.9 | int }} {{ '3.9' | int }} {{ ' 7 ' | int }} {{ '1.5' | float }} {{ 'x' | float }} {{ 5 | float }} {{ true | int }} {{ nothing | int }} {{ nothing | float(1.5) }}
{{ lines | indent }}|{{ 'a\nb\n\nc' | indent(2) }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb' | indent(2, blank=true) }}|{{ 'a\nb' | indent('>>') }}|{{ '' | indent(2, true) }}|
{{ 'foo bar baz qux' | truncate(9) }} {{ 'foo bar baz qux' | truncate(9, true) }} {{ 'foo bar baz qux' | truncate(11) }} {{ 'foo bar baz qux' | truncate(9, false, '..', 0) }} {{ s | wordcount }} {{ html | striptags }} {{ 'a b/c?d=é&f' | urlencode }} {{ 'x' | center(5) }}|
{{ html | e }} {{ html | escape }} {{ html | safe }} {{ html }}
{{ [1, 'a', none, true, 2.0, {'k': 'v'}] | tojson }} {{ d | tojson }} {{ u | tojson }} {{ html | tojson }} {{ "q\"b\\n\n\t\r\b\f\x01\x7f\u2028" | tojson }} {{ [] | tojson }} {{ {} | tojson }} {{ (1, 2) | tojson }} {{ 1e22 | tojson }} {{ 1.0 | tojson }} {{ big | tojson }} {{ {1: 'a', none: 'b', true: 'c'} | tojson }}
{{ d | tojson(indent=2) }}
{{ {'b': [1, {'z': []}], 'a': {}} | tojson(indent=4, sort_keys=true) }}
{{ u | tojson(ensure_ascii=true) }} {{ d | tojson(separators=(',', ':')) }} {{ [1, [2]] | tojson(indent=1, separators=(', ', ' : ')) }} {{ [1, 2] | tojson(indent='->') }} {{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ [1] | tojson(indent=0) }}
{{ d | items | list }} {{ missing | items | list }}
{{ xs is iterable }} {{ s is iterable }} {{ n is iterable }} {{ xs is sequence }} {{ s is sequence }} {{ d is sequence }} {{ d is mapping }} {{ xs is mapping }} {{ n is number }} {{ yes is number }} {{ yes is integer }} {{ n is integer }} {{ f is float }} {{ yes is boolean }} {{ s is string }} {{ nothing is none }} {{ missing is none }} {{ missing is defined }} {{ missing is undefined }} {{ s is defined }} {{ missing is iterable }} {{ missing is sequence }} {{ missing is string }} {{ d.items() is iterable }} {{ d.items() is sequence }}
{{ n is odd }} {{ n is even }} {{ 6 is divisibleby 3 }} {{ 6 is divisibleby(4) }} {{ n is eq 7 }} {{ n is ne(7) }} {{ n is gt 3 }} {{ n is lt(3) }} {{ 1 is in [1, 2] }} {{ 'a' is in 'abc' }} {{ yes is true }} {{ 1 is true }} {{ no is false }} {{ none is sameas none }} {{ 'ab' is lower }} {{ 'AB' is upper }} {{ 'trim' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ range is callable }} {{ s is callable }} {{ s is not string }} {{ not s is string }} {{ n is not none and s is string }}
{{ range(5) | list }} {{ range(2, 8, 3) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {{ range(3)[1] }} {{ range(10)[2:4] | list }}
{{ dict(a=1, b='x') }} {{ dict([('a', 1)]) }} {{ dict({'a': 1}, b=2) }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }} {{ c.current }} {% set j = joiner('|') %}{{ j() }}a{{ j() }}b
{{ n | default(3) | string | length }} {{ (n | string) + 'x' }} {{ n | string ~ 'x' }} {{ not n | string == '7' }} {{ -1 | abs }} {{ 'a' ~ 'b' | upper }} {{ 1 + '2' | int }} {{ xs | length > 2 }} {{ xs | length - 1 }}
{% if xs and xs | length > 2 and d.a == 'x' or missing %}yes{% endif %} {% if missing %}a{% elif n > 5 %}b{% else %}c{% endif %}
{%- for m in messages -%}
    {%- if m.role == 'user' %}
        U: {{ m.content }}
    {%- else -%}
        A: {{ m.content -}}
    {% endif %}
{% endfor -%}
end
    {% if yes %}
  indented
    {% endif %}
tail {{ n }}  
  {%+ if yes %} plus {% endif +%}
x
{{- '  a  ' -}}  b  {{ 'c' }}
{% if yes -%}  x  {%- endif %} y
a{% if yes %}

b{% endif %}

c
{{ s[1:3] ~ s[-1] }}{{ '\n' }}{{- 'x' }}
{% generation %}inside {% set g = 1 %}{{ g }}{% endgeneration %}{{ g }}
{{ messages | tojson }}
{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | first }} {{ messages | map(attribute='role') | join(' ') }} {{ (messages | last).content }} {{ messages[-1].role }} {{ messages[::-1] | map(attribute='role') | list }}
{% set g = xs | select('odd') %}{{ g | list }}{{ g | list }} {% set r = xs | reverse %}{% for x in r %}{{ x }}{% endfor %}{% for x in r %}{{ x }}{% endfor %}
{{ {'a': 1, 'a': 2} }} {{ {1: 'x', 1.0: 'y', true: 'z'} }} {{ {(1, 2): 3} }} {{ {'k': 1}['k'] }}
{{ [1, 2, 3][1] }} {{ 'abc'[1] }} {{ {'a': {'b': 1}}.a.b }} {{ (1, 2)[0] }} {{ [[1, 2], [3]][0][1] }}
{{ s.upper().lower().title() }} {{ s | lower | replace('l', '') | length }} {{ (s ~ u).split(' ')[0][0:2] }}
{{ xs.index(1) }} {{ xs.count(3) }} {{ d.copy() == d }} {{ ''.join(words) }} {{ 'x'.join(d) }}
{{ (xs | length) is odd }} {{ 'a' if xs is iterable and xs is not string else 'b' }}
{% set x = namespace(found=false) %}{% for p in people %}{% if p.name == 'bob' %}{% set x.found = true %}{% endif %}{% endfor %}{{ x.found }}
{% set ns = namespace() %}{% set ns.a = [] %}{% set ns.a = ns.a + [1] %}{% set ns.a = ns.a + [2] %}{{ ns.a }}
{{ missing.attr }}
{{ missing[0] }}
{{ missing() }}
{{ missing + 1 }}
{{ 'a' + missing }}
{{ missing < 1 }}
{{ missing | tojson }}
{{ [missing] | tojson }}
{{ d.nope.deeper }}
{{ nothing.attr }}
{{ nothing.attr.more }}
{{ nothing | length }}
{{ n | length }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ 'a' < 1 }}
{{ [1] + (2,) }}
{{ {} + {} }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ xs.append(1) }}
{{ d.update({}) }}
{{ d.pop('a') }}
{{ ''.__class__.__mro__ }}
{{ s.__class__.x }}
{{ n() }}
{{ s() }}
{{ s.nope() }}
{{ 1 in 5 }}
{{ 1 in 'abc' }}
{{ s | nofilter }}
{{ s is notest }}
{{ range(1000000) }}
{{ range(1, 2, 0) }}
{{ raise_exception('no') }}
{{ [3, 'a'] | sort }}
{{ {'a': range} | tojson }}
{{ (xs | select) | tojson }}
{{ d.items() | tojson }}
{{ (xs | map('string'))[0] | upper }}|
{{ xs | map('string') | length }}
{{ xs | reverse | length }}
{{ '%d' % 'x' }}
{{ '%s %s' % 'x' }}
{{ '%s' % ('a', 'b') }}
{{ '{}'.format() }}
{{ '{'.format(1) }}
{{ s[::0] }}
{{ s['a':] }}
{{ {[1]: 2} }}
{{ ','.join([1]) }}
{{ 'a'.split('') }}
{{ s.startswith(1) }}
{% set s.x = 1 %}
{% for a, b in [[1]] %}{% endfor %}
{% for x in nothing %}{% endfor %}
{% for x in 5 %}{% endfor %}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}
{% break %}
{% if %}{% endif %}
{% if x %}
{% endif %}
{% for x in xs %}{% endif %}
{% unknown %}
{% do 1 %}
{% include 'x' %}
{{ 
{{ 'abc }}
{{ 1 + }}
{{ (1 }}
{{ [1, }}
{{ a b }}
{{ x is not }}
{# never closed
{% raw %} never closed
{{ 'a' | }}
{{ x. }}
{% set 1 = 2 %}
{% set true = 2 %}
{{ f(a=1, 2) }}
{{ $ }}
{{ 'a' | round }}
{{ '' | truncate(1) }} {{ 'abcdefghijkl' | truncate(1) }}
{% for x in xs %}{{ loop.cycle() }}{% endfor %}
{% for x in xs %}{{ loop(xs) }}{% endfor %}
{% call s() %}{% endcall %}
{% macro m() %}x{% endmacro %}{% call m() %}{% endcall %}
{{ cycler() }}
{{ dict(1) }}
{{ 'ß'.swapcase() }} {{ 'aÉ'.swapcase() }} {{ 'a  b '.split(none, 1) }} {{ ' a  b'.rsplit(none, 1) }} {{ 'a b '.split(none, 5) }} {{ 1250 | round(-2) }} {{ 1350 | round(-2) }} {{ -1250 | round(-2) }} {{ 5 | round(-1) }}
'''


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    # Templates with several lines are written as one item between lines that are complete on their own.
    out, block = [], []
    for line in CASES.strip("\n").split("\n"):
        block.append(line)
        text = "\n".join(block)
        if any(text.startswith(start) and not text.endswith(end) for start, end in MULTI.items()):
            continue
        block = []
        try:
            out.append({"template": text, "expected": env.from_string(text).render(**CONTEXT)})
        except Exception as error:  # noqa: BLE001: every failure is a result
            out.append({"template": text, "error": f"{type(error).__name__}: {error}"})
    assert not block, block
    print(json.dumps({"jinja2": jinja2.__version__, "context": CONTEXT, "cases": out}, ensure_ascii=False, indent=1))


# First line of a template of several lines → its last characters.
MULTI = {
    "{%- for m in messages -%}": "\nend",
    "    {% if yes %}": "tail {{ n }}  ",
    "  {%+ if yes %}": "\nx",
    "a{% if yes %}": "\nc",
}

if __name__ == "__main__":
    main()
