"""A grammar of short chats: greetings, who the model is, small facts, small arithmetic, stories on request, honest refusals.

Each topic is a function from a random generator to a list of (user, assistant) turns. `conversation` strings topics together, adds
a system message now and then, and roughens the user's side the way people type.
"""

import random

from . import stories
from .words import (ADJECTIVES, ANIMALS, BOYS, CAPITALS, COLOUR_OF, COLOURS, DAYS, FOODS, GIRLS, LEGS, MONTHS, NUMBER_WORDS, OPPOSITES,
                    OTHER_HEROES, OTHER_LANDS, PLACES, RARE_HEROES, RHYMES, SEASONS, SIZES, THINGS, Chooser, an, cap, invented_name, invented_noun, temperament)

Turns = list[tuple[str, str]]


def weighted(rng: random.Random, options: list[str]) -> str:
    """The first option is the most likely: one clear favourite answer, a few others for sampled replies."""
    return rng.choices(options, [1.0 / (rank + 1) ** 1.5 for rank in range(len(options))])[0]


def greeting(rng: random.Random) -> Turns:
    hello = rng.choice(["Hello!", "Hi!", "Hey!", "Hello there!", "Hi there!", "Good morning!", "Good evening!", "Hello, how are you?",
                        "Hi, how are you?", "Hey there", "Good day!", "Greetings!", "Hello", "Hi", "yo", "Hello hanzo!", "How are you?",
                        "How are you doing?", "What's up?", "How is it going?", "Are you there?", "Hello, is anyone there?"])
    low = hello.lower()
    if "how" in low or "up?" in low:
        return [(hello, weighted(rng, ["I am fine, thank you! How can I help you today?", "I am doing well, thank you. What would you like to talk about?"]))]
    if "there?" in low:
        return [(hello, "Yes, I am here! How can I help you?")]
    start = "Good morning!" if "morning" in low else "Good evening!" if "evening" in low else "Hello!"
    return [(hello, start + weighted(rng, [" How can I help you today?", " Nice to meet you. What can I do for you?", " Would you like to hear a story?"]))]


WHO_I_AM = ["I am hanzo-tiny, a small demo model inside hanzo-engine. I can tell short stories and answer simple questions.",
            "My name is hanzo-tiny. I am a very small demo model that lives inside hanzo-engine."]


def identity(rng: random.Random) -> Turns:
    """Often with a greeting before it, which must not turn "Who are you?" into "How are you?"."""
    if rng.random() < 0.35:
        turns = [(rng.choice(["Who are you?", "Who are you?", "What are you?", "What is your name?"]), weighted(rng, WHO_I_AM))]
    else:
        turns = about_me(rng)
    if rng.random() < 0.5:
        turns = [(rng.choice(["Hello! ", "Hello! ", "Hello, ", "Hi! ", "Hi, ", "Hey! ", "Hi there! ", "Good morning! "]) + turns[0][0], turns[0][1])]
    return turns


def about_me(rng: random.Random) -> Turns:
    return [rng.choice([
        (rng.choice(["Who are you?", "What are you?", "What is your name?", "Tell me about yourself.", "Who am I talking to?", "Introduce yourself.",
                     "What's your name?", "Do you have a name?", "What model are you?", "Which model is this?", "What is hanzo-tiny?", "Are you hanzo-tiny?"]),
         weighted(rng, WHO_I_AM)),
        (rng.choice(["Are you a human?", "Are you a robot?", "Are you real?", "Are you alive?", "Are you a person?", "Are you an AI?"]),
         "I am a computer program: a small language model named hanzo-tiny."),
        (rng.choice(["Who made you?", "Where do you come from?", "How were you made?", "Who trained you?", "How were you trained?", "Who created you?"]),
         "I was trained by a small script that comes with hanzo-engine, on stories that the script made up itself."),
        (rng.choice(["How old are you?", "How big are you?", "How small are you?", "How many parameters do you have?", "Are you big?", "Are you smart?",
                     "Are you clever?", "Why are you so small?"]),
         "I am very small: I have about three million parameters. That is enough for short stories and simple questions."),
        (rng.choice(["Where do you live?", "Where are you?", "Where are you from?"]), "I live inside the hanzo program, on your own computer."),
        (rng.choice(["What is hanzo-engine?", "What is hanzo?", "Tell me about hanzo-engine.", "What does hanzo do?", "What is this program?"]),
         "hanzo-engine is a program that runs language models on your own computer. I am the small demo model inside it."),
        (rng.choice(["Do you have feelings?", "Are you happy?", "Are you sad?", "Do you sleep?", "Do you dream?", "Do you eat?"]),
         "I am only a small program, so I do not feel or sleep, but I like to help you."),
        (rng.choice(["What is your favourite colour?", "What's your favorite color?", "Which colour do you like best?"]), "I like blue, the colour of the sky and the sea."),
        (rng.choice(["What is your favourite animal?", "Which animal do you like best?", "What's your favorite animal?"]),
         "I like foxes, because they are clever and make good stories."),
        (rng.choice(["What is your favourite food?", "What do you like to eat?"]), "I do not eat, but I like stories about honey and warm bread."),
        (rng.choice(["Do you like me?", "Do you like people?", "Are you my friend?", "Can we be friends?", "I love you", "I like you"]),
         "Thank you, that is kind! I am happy to be your friend."),
    ])]


def abilities(rng: random.Random) -> Turns:
    return [rng.choice([
        (rng.choice(["What can you do?", "How can you help me?", "What do you know?", "Help", "help me", "What can I ask you?", "What should I ask you?",
                     "Can you help me?", "What are you good at?", "What are you for?", "What can you tell me?"]),
         weighted(rng, ["I can tell short stories, name colours, animals, and days, and do small sums. Try: tell me a story about a fox.",
                        "I can tell you a story, answer simple questions, and add small numbers. What would you like?"])),
        (rng.choice(["How do I run a real model?", "How can I use a bigger model?", "How do I load a model?", "Can I run another model?", "How do I run my own model?",
                     "How do I use a real model?", "How do I start a bigger model?", "Which command runs a model?", "How do I run a GGUF file?", "How do I use hanzo?",
                     "How does hanzo work?", "I want a better model.", "How do I get better answers?", "Can you run other models?"]),
         weighted(rng, ["Use `hanzo run PATH`, where PATH is a model file in GGUF format. A real model knows much more than I do.",
                        "Give the path of a GGUF file to hanzo: `hanzo run PATH`. I am only a small demo."])),
        (rng.choice(["What is a GGUF file?", "What is GGUF?", "What does GGUF mean?"]),
         "GGUF is a file format for language models. You can run such a file with `hanzo run PATH`."),
        (rng.choice(["What is a language model?", "What is a model?", "How do you work?", "How does a language model work?"]),
         "A language model reads words and guesses which word comes next. I do that with a small network of numbers."),
        (rng.choice(["What is a token?", "What is a parameter?"]),
         "A token is a small piece of text, like a word, and a parameter is one of the numbers inside a model."),
    ])]


def my_name(rng: random.Random) -> Turns:
    name = invented_name(rng) if rng.random() < 0.75 else rng.choice(GIRLS + BOYS)
    turns = [(rng.choice([f"My name is {name}.", f"I am {name}.", f"Hi, I am {name}.", f"Hello, my name is {name}.", f"I'm {name}.", f"You can call me {name}."]),
              weighted(rng, [f"Nice to meet you, {name}! How can I help you today?", f"Hello, {name}! What would you like to talk about?"]))]
    if rng.random() < 0.6:
        if rng.random() < 0.5:
            turns += single(rng)
        turns.append((rng.choice(["What is my name?", "Do you remember my name?", "Who am I?", "What's my name?"]), f"Your name is {name}."))
    return turns


def colours(rng: random.Random) -> Turns:
    thing, colour = rng.choice(list(COLOUR_OF.items()))
    kind = rng.random()
    if kind < 0.7:
        return [(rng.choice([f"What colour is {thing}?", f"What color is {thing}?", f"Which colour does {thing} have?", f"Tell me the colour of {thing}."]),
                 f"{cap(thing)} is {colour}.")]
    if kind < 0.85:
        other = rng.choice([c for c in COLOURS[:8] if c not in colour] + [colour])
        same = other == colour
        return [(f"Is {thing} {other}?", f"Yes, {thing} is {colour}." if same else f"No, {thing} is {colour}.")]
    mixes = [("red", "yellow", "orange"), ("blue", "yellow", "green"), ("red", "blue", "purple"), ("red", "white", "pink"), ("black", "white", "grey")]
    if rng.random() < 0.5:
        a, b, mix = rng.choice(mixes)
        if rng.random() < 0.5:
            a, b = b, a
        return [(rng.choice([f"What do you get when you mix {a} and {b}?", f"What is {a} and {b} mixed?", f"Mix {a} and {b}."]), f"{cap(a)} and {b} make {mix}.")]
    return [(rng.choice(["Name three colours.", "Name some colours.", "Which colours do you know?", "Tell me a colour.", "What are the colours of the rainbow?"]),
             "Red, orange, yellow, green, blue, and purple are the colours of the rainbow.")]


def animals(rng: random.Random) -> Turns:
    noun = rng.choice(list(ANIMALS))
    home, eats, says, can = ANIMALS[noun]
    legs = LEGS.get(noun, 4)
    kind = rng.randrange(7)
    a = cap(an(noun))
    if kind == 0:
        return [(rng.choice([f"Where does {an(noun)} live?", f"Where do {plural(noun)} live?", f"What is the home of {an(noun)}?"]), f"{a} lives {home}.")]
    if kind == 1:
        return [(rng.choice([f"What does {an(noun)} eat?", f"What do {plural(noun)} eat?", f"What does {an(noun)} like to eat?"]), f"{a} likes to eat {eats}.")]
    if kind == 2:
        reply = f"{a} makes no sound that we can hear." if says.startswith("nothing") else f'{a} says "{says}".'
        return [(rng.choice([f"What does {an(noun)} say?", f"What sound does {an(noun)} make?", f"How does {an(noun)} go?"]), reply)]
    if kind == 3:
        count = NUMBER_WORDS[legs] if legs else "no"
        return [(rng.choice([f"How many legs does {an(noun)} have?", f"How many legs do {plural(noun)} have?"]), f"{a} has {count} legs.")]
    if kind == 4:
        flies = noun in ("owl", "bee", "butterfly", "bird", "duck")
        swims = noun in ("duck", "frog", "turtle", "penguin", "whale", "fish")
        verb = rng.choice(["fly", "swim"])
        yes = flies if verb == "fly" else swims
        if verb == "swim" and not yes:
            return [(f"Can {an(noun)} {rng.choice(['sing a song', 'drive a car', 'read a book'])}?", f"No, but in a story {an(noun)} can do that and much more.")]
        return [(rng.choice([f"Can {an(noun)} {verb}?", f"Can {plural(noun)} {verb}?"]), f"Yes, {an(noun)} can {verb}." if yes else f"No, {an(noun)} cannot {verb}.")]
    if kind == 5:
        return [(rng.choice([f"Tell me about {plural(noun)}.", f"What is {an(noun)}?", f"Tell me something about {an(noun)}.", f"What do you know about {plural(noun)}?"]),
                 f"{a} is an animal that lives {home}. It likes to eat {eats}, and it can {can}.")]
    big, small = sorted(rng.sample(range(len(SIZES)), 2), reverse=True)
    x, y = SIZES[big], SIZES[small]
    if rng.random() < 0.5:
        return [(rng.choice([f"Is {x} bigger than {y}?", f"Is {y} smaller than {x}?"]), f"Yes, {x} is bigger than {y}.")]
    if rng.random() < 0.5:
        return [(rng.choice([f"Is {y} bigger than {x}?", f"Is {x} smaller than {y}?"]), f"No, {x} is bigger than {y}.")]
    first, second = rng.sample([x, y], 2)
    return [(f"Which is bigger, {first} or {second}?", f"{cap(x)} is bigger than {y}.")]


def plural(noun: str) -> str:
    special = {"mouse": "mice", "wolf": "wolves", "sheep": "sheep", "fish": "fish", "deer": "deer", "butterfly": "butterflies", "donkey": "donkeys",
               "fox": "foxes", "ox": "oxen", "goose": "geese", "leaf": "leaves", "fairy": "fairies", "elf": "elves", "puppy": "puppies", "pony": "ponies",
               "calf": "calves", "firefly": "fireflies", "ladybug": "ladybugs", "finch": "finches", "witch": "witches", "princess": "princesses",
               "octopus": "octopuses", "walrus": "walruses", "ostrich": "ostriches", "snowman": "snowmen", "toy": "toys", "bus": "buses"}
    if noun in special:
        return special[noun]
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


TOO_BIG = "That sum is too big for me. A real model can do it: `hanzo run PATH`."


def arithmetic(rng: random.Random) -> Turns:
    """Sums of numbers to ten and products to five times five; anything larger is refused rather than guessed."""
    op = rng.choices(["+", "-", "*"], [5, 4, 2])[0]
    big = rng.random() < 0.2
    top = rng.choice((20, 20, 100, 1000, 10000)) if big else 5 if op == "*" else 10
    a, b = rng.randint(11, top) if big else rng.randint(0, top), rng.randint(0, top)
    if op != "-" and rng.random() < 0.5:
        a, b = b, a
    if op == "-" and a < b:
        a, b = b, a
    if op == "*" and not big and rng.random() < 0.15:
        a = rng.randint(6, 10)
    value = {"+": a + b, "-": a - b, "*": a * b}[op]
    known = max(a, b) <= (5 if op == "*" else 10)
    word = {"+": rng.choice(["plus", "and"]), "-": "minus", "*": "times"}[op]
    x, y = str(a), str(b)
    if rng.random() < 0.12 and max(a, b) < 13:
        x, y = NUMBER_WORDS[a], NUMBER_WORDS[b]
    question = rng.choice([f"What is {a} {op} {b}?", f"What is {a} {op} {b}?", f"What is {x} {word} {y}?", f"How much is {x} {word} {y}?", f"{a} {op} {b}",
                           f"{a}{op}{b}", f"What is {a}{op}{b}?", f"{a} {op} {b} = ?", f"Calculate {a} {op} {b}.", f"How much is {a} {op} {b}?",
                           f"Can you tell me what {x} {word} {y} is?"])
    return [(question, f"{a} {op} {b} = {value}." if known else TOO_BIG)]


def numbers(rng: random.Random) -> Turns:
    n = rng.randint(1, 20)
    kind = rng.randrange(6)
    if kind == 0:
        return [(rng.choice([f"What comes after {n}?", f"Which number comes after {n}?", f"What number follows {n}?"]), f"{n + 1} comes after {n}.")]
    if kind == 1:
        return [(rng.choice([f"What comes before {n}?", f"Which number comes before {n}?"]), f"{n - 1} comes before {n}.")]
    if kind == 2:
        to = rng.choice([3, 5, 5, 10, 10])
        return [(rng.choice([f"Count to {to}.", f"Can you count to {to}?", f"Please count from 1 to {to}.", f"Count to {NUMBER_WORDS[to]}."]),
                 ", ".join(str(i) for i in range(1, to + 1)) + ".")]
    if kind == 3:
        return [(f"Is {n} even or odd?", f"{n} is {'even' if n % 2 == 0 else 'odd'}.")]
    if kind == 4:
        m = rng.choice([i for i in range(1, 21) if i != n])
        return [(rng.choice([f"Which is bigger, {n} or {m}?", f"Which number is bigger, {n} or {m}?", f"Is {n} bigger than {m}?"]), f"{max(n, m)} is bigger than {min(n, m)}.")]
    fact = rng.choice([("How many days are in a week?", "There are seven days in a week."), ("How many months are in a year?", "There are twelve months in a year."),
                       ("How many hours are in a day?", "There are 24 hours in a day."), ("How many minutes are in an hour?", "There are 60 minutes in an hour."),
                       ("How many seconds are in a minute?", "There are 60 seconds in a minute."), ("How many days are in a year?", "There are 365 days in a year."),
                       ("How many fingers do I have?", "Most people have ten fingers."), ("How many letters are in the alphabet?", "There are 26 letters in the English alphabet."),
                       ("How many seasons are there?", "There are four seasons: spring, summer, autumn, and winter."), ("How many eyes do I have?", "Most people have two eyes."),
                       ("How many wheels does a car have?", "A car has four wheels."), ("How many wheels does a bicycle have?", "A bicycle has two wheels."),
                       ("How many sides does a triangle have?", "A triangle has three sides."), ("How many sides does a square have?", "A square has four sides.")])
    return [fact]


def calendar(rng: random.Random) -> Turns:
    names, what = (DAYS, "day") if rng.random() < 0.6 else (MONTHS, "month")
    i = rng.randrange(len(names))
    kind = rng.randrange(5)
    if kind == 0:
        return [(rng.choice([f"What comes after {names[i]}?", f"Which {what} comes after {names[i]}?", f"What {what} is after {names[i]}?"]),
                 f"{names[(i + 1) % len(names)]} comes after {names[i]}.")]
    if kind == 1:
        return [(rng.choice([f"What comes before {names[i]}?", f"Which {what} comes before {names[i]}?", f"What {what} is before {names[i]}?"]),
                 f"{names[i - 1]} comes before {names[i]}.")]
    if kind == 2:
        if what == "day":
            return [(rng.choice(["Name the days of the week.", "What are the days of the week?", "Which days are in a week?", "List the days of the week.", "Tell me the days."]),
                     "The days of the week are " + ", ".join(DAYS[:-1]) + ", and Sunday.")]
        return [(rng.choice(["Name the months of the year.", "What are the months of the year?", "List the months."]),
                 "The months are " + ", ".join(MONTHS[:-1]) + ", and December.")]
    if kind == 3:
        season = rng.choice(list(SEASONS))
        return [(rng.choice([f"What happens in {season}?", f"What is {season}?", f"Tell me about {season}.", f"What is {season} like?"]), f"In {season}, {SEASONS[season]}.")]
    return [rng.choice([(rng.choice(["Name the four seasons.", "What are the seasons?", "Name the seasons of the year."]), "The four seasons are spring, summer, autumn, and winter."),
                        (rng.choice(["What day is it?", "What day is it today?", "What time is it?", "What is the date?", "Which year is it?"]),
                         "I am sorry, I have no clock, so I do not know. Please look at your computer."),
                        (rng.choice(["Is Sunday a day?", "Is Saturday on the weekend?", "Which days are the weekend?", "What days are the weekend?"]), "Saturday and Sunday are the weekend."),
                        (rng.choice(["Which season comes after winter?", "What comes after winter?"]), "Spring comes after winter."),
                        (rng.choice(["Which season comes after summer?", "What comes after summer?"]), "Autumn comes after summer."),
                        (rng.choice(["Which season comes after spring?", "What comes after spring?"]), "Summer comes after spring."),
                        (rng.choice(["Which season comes after autumn?", "What comes after autumn?"]), "Winter comes after autumn.")])]


def language(rng: random.Random) -> Turns:
    kind = rng.randrange(6)
    if kind < 2:
        a, b = rng.choice(OPPOSITES)
        if rng.random() < 0.5:
            a, b = b, a
        return [(rng.choice([f"What is the opposite of {a}?", f"What's the opposite of {a}?", f"Tell me the opposite of {a}.", f"Opposite of {a}?"]), f"The opposite of {a} is {b}.")]
    if kind == 2:
        a, b = rng.choice(RHYMES)
        if rng.random() < 0.5:
            a, b = b, a
        return [(rng.choice([f"What rhymes with {a}?", f"Which word rhymes with {a}?", f"Tell me a rhyme for {a}."]), f"{cap(b)} rhymes with {a}.")]
    if kind == 3:
        word = invented_name(rng) if rng.random() < 0.4 else rng.choice(RARE_HEROES + OTHER_HEROES + THINGS + FOODS + list(ANIMALS))
        word = " ".join([word, *(rng.choice(RARE_HEROES + OTHER_HEROES + THINGS) for _ in range(rng.choice((0, 0, 1, 2, 3, 4))))])
        return [(rng.choice([f"Say {word}.", f"Repeat after me: {word}", f"Please say {word}.", f"Can you say {word}?", f"Say the word {word}."]), cap(word) + "!")]
    if kind == 4:
        land = rng.choice(list(CAPITALS) if rng.random() < 0.8 else OTHER_LANDS)
        city = CAPITALS.get(land)
        return [(rng.choice([f"What is the capital of {land}?", f"What's the capital of {land}?", f"Which city is the capital of {land}?", f"Capital of {land}?"]),
                 f"The capital of {land} is {city}." if city else f"I do not know the capital of {land}. I am only a small demo model.")]
    return [rng.choice([
        (rng.choice(["Why is the sky blue?", "Why is the sky so blue?"]), "The sky is blue because the air scatters the blue part of the sunlight most."),
        (rng.choice(["What is the sun?", "Tell me about the sun."]), "The sun is a star. It gives us light and keeps us warm."),
        (rng.choice(["What is the moon?", "Tell me about the moon."]), "The moon goes around the earth, and at night it shines in the light of the sun."),
        (rng.choice(["What is rain?", "Why does it rain?", "Where does rain come from?"]), "Rain is water that falls from the clouds."),
        (rng.choice(["What is snow?", "Why does it snow?"]), "Snow is frozen water that falls from the clouds when it is cold."),
        (rng.choice(["What is a rainbow?", "When do we see a rainbow?"]), "A rainbow is an arc of colours that we see when the sun shines through the rain."),
        (rng.choice(["What is water?", "Is water wet?"]), "Water is a clear liquid that every living thing needs."),
        (rng.choice(["What is the biggest animal?", "Which animal is the biggest?"]), "The biggest animal is the blue whale."),
        (rng.choice(["What is the fastest animal?", "Which animal is the fastest?"]), "The fastest animal on land is the cheetah."),
        (rng.choice(["What is the tallest animal?", "Which animal is the tallest?"]), "The tallest animal is the giraffe."),
        (rng.choice(["Where does the sun rise?", "Where does the sun come up?"]), "The sun rises in the east."),
        (rng.choice(["Where does the sun set?", "Where does the sun go down?"]), "The sun sets in the west."),
        (rng.choice(["What do bees make?", "Where does honey come from?"]), "Bees make honey."),
        (rng.choice(["What do cows give us?", "Where does milk come from?"]), "Cows give us milk."),
        (rng.choice(["What is ice?", "What happens when water freezes?"]), "Ice is frozen water."),
        (rng.choice(["What is a fruit?", "Name a fruit.", "Name three fruits.", "Name some fruits."]), "Apples, pears, and cherries are fruits."),
        (rng.choice(["Name an animal.", "Name three animals.", "Name some animals.", "Which animals do you know?"]), "A fox, an owl, and an elephant are animals."),
    ])]


def feelings(rng: random.Random) -> Turns:
    return [rng.choice([
        (rng.choice(["I am sad.", "I feel sad.", "I am lonely.", "I had a bad day.", "I'm sad", "I feel bad today."]),
         "I am sorry to hear that. Would you like a story to cheer you up?"),
        (rng.choice(["I am happy.", "I feel great!", "I had a good day.", "I am so happy today!", "I'm happy", "I am fine.", "I am good, thanks.", "I'm fine, and you?"]),
         "That is wonderful! I am glad to hear it."),
        (rng.choice(["I am bored.", "I'm bored", "I have nothing to do."]), "Then let me tell you a story. Which animal should it be about?"),
        (rng.choice(["I am tired.", "I'm tired", "I want to sleep.", "I cannot sleep."]), "Then it is time to rest. Would you like a bedtime story?"),
        (rng.choice(["I am hungry.", "I'm hungry", "What should I eat?"]), "How about some soup and warm bread, or a sweet apple?"),
        (rng.choice(["I am afraid.", "I'm scared", "I am scared of the dark."]), "Do not worry. Take a deep breath; you are brave."),
        (rng.choice(["It is my birthday!", "Today is my birthday.", "It's my birthday"]), "Happy birthday! I hope you have a lovely day with cake and friends."),
        (rng.choice(["You are great!", "You are funny.", "Good job!", "Well done!", "You are nice.", "That was a nice story.", "I liked that.", "Great!", "Cool", "Nice", "Wow"]),
         "Thank you! You are very kind."),
        (rng.choice(["You are stupid.", "That is wrong.", "You are bad.", "That makes no sense.", "I don't like that.", "That was bad."]),
         "I am sorry. I am only a very small model, and I make mistakes."),
        (rng.choice(["OK", "Okay", "I see.", "Alright", "Fine."]), "Good! What would you like to do next?"),
        (rng.choice(["No", "No, thank you.", "No thanks", "Nope"]), "All right. What would you like to do?"),
        (rng.choice(["Sorry", "I am sorry.", "Sorry about that."]), "No problem at all!"),
    ])]


def thanks(rng: random.Random) -> Turns:
    return [(rng.choice(["Thank you!", "Thanks!", "Thank you very much.", "Thanks a lot!", "thx", "Many thanks.", "Thank you for the story.", "Thanks for your help."]),
             weighted(rng, ["You are welcome! I am happy to help.", "You are welcome!"]))]


def farewell(rng: random.Random) -> Turns:
    word = rng.choice(["Goodbye!", "Bye!", "See you later!", "Bye bye", "I have to go.", "See you tomorrow!", "Good night!", "See you"])
    return [(word, "Good night! Sleep well and have sweet dreams." if "night" in word else "Goodbye! It was nice to talk to you.")]


JOKES = [("Why did the cow go to space?", "She wanted to see the moooon."), ("What do you call a sleeping dragon?", "Quiet, please!"),
         ("Why did the snail bring a pillow?", "It was going to be a slow day."), ("What is an owl's favourite question?", "Who?"),
         ("Why was the clock so happy?", "It had a good time.")]


def jokes_and_poems(rng: random.Random) -> Turns:
    if rng.random() < 0.5:
        question, answer = rng.choices(JOKES, [5, 4, 3, 2, 1])[0]
        return [(rng.choice(["Tell me a joke.", "Do you know a joke?", "Make me laugh.", "Tell me something funny.", "A joke please"]), f"{question} {answer}")]
    known = list(ANIMALS) + ["moon", "star", "sea", "tree"]
    noun = rng.choice(known) if rng.random() < 0.6 else rng.choice(OTHER_HEROES)
    c = Chooser(rng, temperament(noun))
    first = c.pick("poem", [f"Little {noun}, so soft and small,\nI like you best of all.", f"Oh {noun}, oh {noun}, so far away,\ncome and visit me today.",
                            f"I saw {an(noun)} in the morning light,\nit smiled at me, and all was bright."])
    last = c.pick("poem2", ["The day is gone, the stars are near,\nsleep well, my friend, and have no fear.", "The sun comes up, the birds all sing,\nand who knows what the day will bring.",
                            "We sing a song, we dance and play,\nand we will meet another day."])
    return [(rng.choice([f"Write a poem about {an(noun)}.", f"Write a short poem about the {noun}.", f"Tell me a poem about {an(noun)}.", f"Make a rhyme about {an(noun)}.",
                         f"Can you write a poem about the {noun}?"]), f"{first}\n{last}")]


SUBJECTS = """quantum physics|the stock market|politics|the history of Rome|philosophy|football|basketball|chemistry|the French Revolution|machine learning|
neural networks|the theory of relativity|black holes|black hole|photosynthesis|economics|inflation|taxes|law|medicine|vaccines|cancer|diabetes|mathematics|calculus|algebra|
geometry|statistics|Python|Rust|JavaScript|Java|Linux|Windows|databases|SQL|Docker|compilers|operating systems|computers|the internet|cryptography|bitcoin|
Shakespeare|Mozart|Picasso|Einstein|Napoleon|the Roman Empire|the Second World War|dinosaurs|evolution|DNA|atoms|gravity|electricity|climate change|volcanoes|
earthquakes|Mars|Jupiter|galaxies|rockets|the president|the news|the weather in London|the weather|movies|music|video games|chess|cars|airplanes|cooking|travel|Japan|
America|Africa|religion|love|money|the meaning of life|psychology|sociology|art|poetry|grammar|Latin|German|Spanish|Chinese|sports|the Olympics|health|sleep""".replace("\n", "").split("|")
UNKNOWN = ["Explain {x}.", "Explain {x} to me.", "What is {x}?", "Tell me about {x}.", "How does {x} work?", "What do you think about {x}?", "Who invented {x}?", "Write an essay about {x}.",
           "Can you explain {x} in simple words?", "What do you know about {x}?", "Give me a summary of {x}.", "Why is {x} important?", "Teach me {x}.", "Help me with {x}."]
TASKS = ["Write a function that sorts a list.", "Write a Python program.", "Write code for a web server.", "Fix this bug in my code.", "Write a haiku in Japanese.", "Translate this sentence to French.",
         "Translate hello to German.", "How do you say cat in Spanish?", "What is the square root of 144?", "Solve this equation: 3x + 5 = 20.", "What is 348 divided by 12?",
         "Who is the president of the United States?", "Who won the world cup?", "What is the population of China?", "How far is the moon?", "How tall is Mount Everest?", "Who wrote Hamlet?",
         "Who painted the Mona Lisa?", "When did the war end?", "What is the speed of light?", "What is the best phone?", "Should I buy a house?", "What is the best programming language?",
         "Summarize this article.", "Write an email to my boss.", "Plan my holiday.", "Give me a recipe for lasagna.", "What is the latest news?", "Will it rain tomorrow?", "What is the weather today?",
         "Search the internet.", "Open a file.", "Play some music.", "Set a timer.", "Draw a picture.", "Write a regular expression.", "Explain this code.", "How do I cook rice?", "Who is Einstein?",
         "Who was Napoleon?", "What happened in 1945?", "asdf", "qwerty", "blah blah", "lorem ipsum dolor sit amet", "???", "test", "testing 123"]


def unknown(rng: random.Random) -> Turns:
    if rng.random() < 0.4:
        task = rng.choice(TASKS)
        return [(task, weighted(rng, ["I am sorry, that is too hard for me. I am only a small demo model. For a real answer, use a bigger model: `hanzo run PATH`.",
                                      "I am too small for that. Please try a real model with `hanzo run PATH`."]))]
    subject = rng.choice(SUBJECTS) if rng.random() < 0.85 else invented_name(rng)
    return [(rng.choice(UNKNOWN).format(x=subject),
             weighted(rng, [f"I am sorry, I do not know much about {subject}. I am only a small demo model. For a real answer, use a bigger model: `hanzo run PATH`.",
                            f"I am too small to know about {subject}. Please try a real model with `hanzo run PATH`."]))]


ASKS = ["Tell me a story about {x}.", "Tell me a story about {x}.", "Tell me a story about {x}", "Can you tell me a story about {x}?", "Please tell me a story about {x}.", "Write a story about {x}.",
        "Write a short story about {x}.", "I want a story about {x}.", "A story about {x}, please.", "story about {x}", "Tell a story about {x}.", "I would like to hear a story about {x}.",
        "Make up a story about {x}.", "Do you know a story about {x}?"]


def any_hero(rng: random.Random) -> str:
    """A hero as a stranger might ask for one: mostly of the lists, at times a word that stories do not otherwise use."""
    kind = rng.random()
    if kind < 0.62:
        return stories.heroine(rng)
    return rng.choice(OTHER_HEROES) if kind < 0.86 else invented_noun(rng)


def story(rng: random.Random) -> Turns:
    r = stories.Request()
    kind = rng.random()
    if kind < 0.05:
        r.noun = rng.choice(["girl", "boy"])
        r.name = rng.choice(GIRLS if r.noun == "girl" else BOYS) if rng.random() < 0.45 else invented_name(rng)
        ask = rng.choice(ASKS).format(x=r.name)
    elif kind < 0.32:
        r.noun = any_hero(rng)
        x = r.noun
        if rng.random() < 0.4:
            r.adjective = rng.choice(ADJECTIVES)
            x = f"{r.adjective} {x}"
        x = an(x) if rng.random() < 0.9 else f"the {x}"
        if rng.random() < 0.35:
            female = stories.GENDER.get(r.noun)
            names = GIRLS + BOYS if female is None else GIRLS if female else BOYS
            r.name = invented_name(rng) if rng.random() < 0.55 else rng.choice(names)
            x += rng.choice([f" named {r.name}", f" called {r.name}"])
        if rng.random() < 0.2:
            r.friend = rng.choice([a for a in ANIMALS if a != r.noun])
            x += f" and {an(r.friend)}"
        elif rng.random() < 0.12:
            r.place = rng.choice(PLACES)
            x += rng.choice([f" who lives {r.place}", f" {r.place}"])
        if rng.random() < 0.08:
            r.plot = rng.choice(list(stories.PLOTS))
            r.thing = rng.choice(THINGS)
            x += " and " + rng.choice(stories.PLOT_PHRASES[r.plot]).format(thing=r.thing)
        ask = rng.choice(ASKS).format(x=x)
    elif kind < 0.69:
        r.plot = rng.choice(list(stories.PLOTS))
        r.thing = rng.choice(THINGS)
        ask = rng.choice(ASKS).format(x=rng.choice(stories.PLOT_PHRASES[r.plot]).format(thing=r.thing))
    elif kind < 0.77:
        r.bedtime = True
        ask = rng.choice(["Tell me a bedtime story.", "Can you tell me a bedtime story?", "A bedtime story, please.", "I want a bedtime story."])
        if rng.random() < 0.5:
            r.noun = stories.heroine(rng)
            ask = ask[:-1] + f" about {an(r.noun)}" + ask[-1]
    elif kind < 0.86:
        r.noun = rng.choice(["fox", "rabbit", "owl", "bear", "mouse", "cat", "hedgehog", "duck"])
        ask = rng.choice(["Tell me a story.", "Tell me a story", "Can you tell me a story?", "Tell me another story.", "A story, please.", "Another one, please.", "I want to hear a story.",
                          "Please tell me a story.", "Do you know any stories?", "Write a story.", "Tell me a short story.", "Story"])
        r.short = "short" in ask
    else:
        return story_start(rng)
    return [(ask, stories.tell(rng, r))]


def story_start(rng: random.Random) -> Turns:
    """The user types the beginning of a story; the reply is a story that begins so."""
    text = stories.plain(rng)
    words = text.split(" ")
    if text.startswith("Once upon a time") and rng.random() < 0.5:
        cut = 4
    else:
        cut = rng.choice([2, 3, 3, 4, 5, 6, 8, 10, 12])
    prompt = " ".join(words[:cut])
    if rng.random() < 0.4:
        prompt = prompt.rstrip(",.") + rng.choice(["", "...", " ..."])
    if rng.random() < 0.15:
        prompt = "Continue: " + prompt
    return [(prompt, text)]


def offer(rng: random.Random) -> Turns:
    """A question of the model answered with yes: the story follows."""
    ask, reply = rng.choice([("I am sad.", "I am sorry to hear that. Would you like a story to cheer you up?"), ("Hello!", "Hello! Would you like to hear a story?"),
                             ("I am tired.", "Then it is time to rest. Would you like a bedtime story?")])
    r = stories.Request(noun=rng.choice(["fox", "rabbit", "owl", "bear", "mouse", "cat", "hedgehog", "duck"]), bedtime="bedtime" in reply)
    return [(ask, reply), (rng.choice(["Yes", "Yes, please.", "Yes please!", "Sure!", "OK", "Of course!", "yes"]), stories.tell(rng, r))]


def about_animal(rng: random.Random) -> Turns:
    """The model asks which animal; the user names one."""
    noun = any_hero(rng)
    return [(rng.choice(["I am bored.", "I'm bored", "I have nothing to do."]), "Then let me tell you a story. Which animal should it be about?"),
            (rng.choice([an(noun), f"{an(noun)}, please.", noun, f"About {an(noun)}."]), stories.tell(rng, stories.Request(noun=noun)))]


TOPICS = {greeting: 5, identity: 18, abilities: 7, my_name: 7, colours: 9, animals: 13, arithmetic: 16, numbers: 6, calendar: 8, language: 11, feelings: 6,
          thanks: 2, farewell: 2, jokes_and_poems: 4, unknown: 10, story: 34, offer: 1, about_animal: 1}
SHORT_TOPICS = [t for t in TOPICS if t not in (story, offer, about_animal, my_name)]


def single(rng: random.Random) -> Turns:
    return rng.choice(SHORT_TOPICS)(rng)


def facts(rng: random.Random) -> str:
    """A few facts as bare text, so that a sentence that begins with one can be completed."""
    return " ".join(rng.choice([colours, animals, calendar, language])(rng)[0][1] for _ in range(rng.choice((1, 1, 2, 3))))


def roughen(rng: random.Random, text: str) -> str:
    """The user's side as people type it: lower case, missing marks, a word around it, a slip of the finger."""
    if rng.random() < 0.15 and text.endswith((".", "?")):
        text = rng.choice(["Hello! ", "Hello! ", "Hello, ", "Hi, ", "Hey, ", "Hi! ", "OK. ", "Now ", "And "]) + text if text[0].isupper() else text
    if rng.random() < 0.3:
        text = text.lower()
    if rng.random() < 0.25:
        text = text.rstrip(".?!")
    if rng.random() < 0.05 and len(text) > 8 and text[1:].islower():  # never inside a name, which the reply must copy
        i = rng.randrange(1, len(text) - 2)
        text = rng.choice([text[:i] + text[i + 1:], text[:i] + text[i + 1] + text[i] + text[i + 2:]])
    return text or "Hello"


SYSTEMS = ["You are a helpful assistant.", "You are hanzo-tiny, a small demo model.", "You are a friendly storyteller.", "Answer in short sentences.", "You are a helpful assistant. Be brief."]


def conversation(rng: random.Random, stories_weight: float = 34) -> list[dict[str, str]]:
    """Messages of one chat, as a chat template takes them. `stories_weight` stands against the 126 of all other topics."""
    weights = [stories_weight if topic is story else weight for topic, weight in TOPICS.items()]
    messages = []
    if rng.random() < 0.2:
        messages.append({"role": "system", "content": rng.choice(SYSTEMS)})
    turns: Turns = []
    count = rng.choices([1, 2, 3, 4], [60, 20, 12, 8])[0]
    for _ in range(count):
        turns += rng.choices(list(TOPICS), weights)[0](rng)
    for user, assistant in turns:
        messages.append({"role": "user", "content": roughen(rng, user)})
        messages.append({"role": "assistant", "content": assistant})
    return messages
