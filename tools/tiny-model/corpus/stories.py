"""A grammar of short stories: an opening, one of sixteen plots told in beats, an ending.

A story is first cast (hero, friend, place, thing) and then told. What a prompt asks for arrives as a partial cast; the rest is drawn.
"""

import random
import re
from dataclasses import dataclass

from .words import (ADJECTIVES, ANIMALS, BOYS, COLOURS, FOODS, GIRLS, LOVES, PLACES, RARE_HEROES, SKILLS, THINGS, Chooser, an, cap,
                    invented_name, temperament)


GENDER = {noun: True for noun in "girl queen princess witch mermaid fairy cow hen grandmother mother sister aunt duchess".split()}
GENDER |= {noun: False for noun in """boy king prince wizard grandfather father brother uncle snowman fisherman postman policeman fireman
emperor duke bishop monk""".split()}


@dataclass
class Request:
    """What the prompt fixes. Empty fields are drawn."""

    noun: str = ""
    name: str = ""
    adjective: str = ""
    place: str = ""
    friend: str = ""
    thing: str = ""
    plot: str = ""
    bedtime: bool = False
    short: bool = False


class Cast:
    """Everyone and everything in one story, with the pronouns that go with them."""

    def __init__(self, rng: random.Random, request: Request):
        child = request.noun in ("boy", "girl")
        if not request.noun:
            kind = rng.random()
            request.noun = rng.choice(list(ANIMALS)) if kind < 0.62 else rng.choice(["girl", "boy"]) if kind < 0.8 else rng.choice(RARE_HEROES)
            child = request.noun in ("boy", "girl")
        self.noun = request.noun
        self.c = c = Chooser(rng, temperament(self.noun))
        female = GENDER.get(self.noun)
        if female is None:
            female = request.name in GIRLS or (request.name not in BOYS and c.pick("gender", [False, True]))
        self.name = request.name
        if not self.name and (child or c.chance(0.6)):
            self.name = invented_name(rng) if c.chance(0.08) else c.pick("name", GIRLS if female else BOYS)
        self.he, self.him, self.his = ("she", "her", "her") if female else ("he", "him", "his")
        self.He, self.His = cap(self.he), cap(self.his)
        self.adj = request.adjective or c.pick("adj", ADJECTIVES)
        self.place = request.place or c.pick("place", PLACES)
        self.friend = request.friend or c.pick("friend", [a for a in ANIMALS if a != self.noun])
        self.thing = request.thing or c.pick("thing", THINGS)
        self.colour = c.pick("colour", COLOURS)
        self.a_colour = an(self.colour)
        self.food = c.pick("food", FOODS)
        self.love = c.pick("love", LOVES)
        self.the = f"the {self.noun}"
        self.intro = an(f"{self.adj} {self.noun}")
        self.turn = 0

    @property
    def h(self) -> str:
        """The hero as a subject inside a sentence: name and noun take turns."""
        self.turn += 1
        return self.name if self.name and self.turn % 2 else self.the

    @property
    def H(self) -> str:
        return cap(self.h)

    @property
    def f(self) -> str:
        return f"the {self.friend}"

    @property
    def F(self) -> str:
        return cap(self.f)


def opening(s: Cast) -> list[str]:
    p = s.c.pick
    named = f"{s.intro} named {s.name}" if s.name else s.intro
    if s.noun in ("boy", "girl") and s.name:
        first = p("open", [f"Once upon a time, there was {named}.", f"Once upon a time, {s.name} lived {s.place}.",
                           f"{s.name} was {s.intro}.", f"There once was {named} who lived {s.place}.",
                           f"Long ago, {named} lived {s.place}."])
    else:
        first = p("open", [f"Once upon a time, there was {named}.", f"Once upon a time, {named} lived {s.place}.",
                           f"Once upon a time, there lived {named}.",
                           f"There once was {named} who lived {s.place}.", f"Long ago, {named} lived {s.place}."]
                  + ([f"{s.name} was {s.intro}."] if s.name else [f"The {s.adj} {s.noun} lived {s.place}."]))
    lines = [first]
    if s.place not in first:
        lines.append(p("home", [f"{s.He} lived {s.place}.", f"{s.His} home was {s.place}.", f"{s.He} lived {s.place} with {s.his} family."]))
    lines.append(p("trait", [f"{s.He} loved to {s.love}.", f"Every day, {s.he} liked to {s.love}.",
                             f"More than anything, {s.he} loved to {s.love}.", f"{s.H} loved {s.food} and liked to {s.love}."]))
    return lines


def when(s: Cast) -> str:
    return s.c.pick("when", ["One day", "One morning", "One sunny day", "One afternoon", "One cold day"])


def lost_thing(s: Cast) -> list[str]:
    p, t = s.c.pick, s.thing
    return [
        p("a", [f"{s.His} favourite thing was {s.a_colour} {t}.", f"{s.He} had {s.a_colour} {t} that {s.he} took everywhere."]),
        p("b", [f"{when(s)}, the {t} was gone.", f"{when(s)}, {s.h} could not find the {t}.", f"{when(s)}, {s.h} lost the {t}."]),
        p("c", [f"{s.He} looked under the bed, but it was not there.", f"{s.He} looked behind the door and under the table.",
                f"{s.He} looked here and there, but {s.he} could not see it."]),
        p("d", [f"{s.H} felt sad and began to cry.", f"{s.H} sat down and felt very sad.", f'"Oh no!" said {s.h}. "Where is my {t}?"']),
        p("e", [f"Then {an(s.friend)} came by.", f"{cap(an(s.friend))} heard {s.him} and came to help."]),
        p("f", [f'"Do not worry," said {s.f}. "We will look together."', f'"I will help you," said {s.f}. "Two can see more than one."']),
        p("g", [f"They looked and looked, and at last they found the {t} under a big leaf.",
                f"They walked along the path, and there was the {t}, next to a tree.",
                f"They looked in the tall grass, and there was the {t}."]),
        p("h", [f'"Thank you!" said {s.h}, and gave {s.f} a big hug.', f"{s.H} was so happy that {s.he} danced around {s.f}.",
                f'{s.H} smiled. "You are a good friend," {s.he} said.']),
    ]


def learn_skill(s: Cast) -> list[str]:
    p = s.c.pick
    skill = p("skill", [k for k in SKILLS if k not in s.love])
    return [
        p("a", [f"But {s.he} could not {skill}.", f"There was one thing {s.he} could not do: {s.he} could not {skill}."]),
        p("b", [f'{when(s)}, {s.h} said, "I want to {skill} too."', f"{when(s)}, {s.he} saw {an(s.friend)} that could {skill} very well."]),
        p("c", [f"{s.He} tried once, but it did not work.", f"{s.He} tried and tried, but it was hard."]),
        p("d", [f'"I will never learn it," {s.he} said sadly.', f'"It is too hard for me," said {s.h}.']),
        p("e", [f'{s.F} smiled and said, "Try a little every day."', f'"I can show you," said {s.f}. "Watch me and go slowly."']),
        p("f", [f"So {s.h} tried again the next day, and the day after that.", f"So every morning, {s.h} and {s.f} went out to practise."]),
        p("g", [f"After a week, {s.he} could {skill} a little.", "Little by little, it became easier."]),
        p("h", [f"Then, one bright morning, {s.h} could {skill} all by {s.him}self.", f'"Look, I can {skill}!" {s.he} cried, and everyone clapped.']),
    ]


def share_food(s: Cast) -> list[str]:
    p = s.c.pick
    return [
        p("a", [f"{when(s)}, {s.h} found a big basket of {s.food}.", f"{when(s)}, {s.h} had a basket full of {s.food}."]),
        p("b", [f'"These are all for me," {s.he} said.', f'"I will keep them all," thought {s.h}.']),
        p("c", [f"Then {an(s.friend)} came along.", f"Soon {an(s.friend)} came down the path."]),
        p("d", [f'"I am so hungry," said {s.f}. "I have not eaten today."', f'{s.F} looked at the basket and said, "That smells so good."']),
        p("e", [f"{s.H} looked at the {s.food} and thought for a while.", f"{s.H} looked at {s.f} and felt sorry."]),
        p("f", [f'"Please, sit down and eat with me," {s.he} said.', f'"There is enough for two," said {s.h}.']),
        p("g", ["They ate together and told each other funny stories.", f"They shared the {s.food} and laughed until the sun went down."]),
        p("h", [f"{s.H} learned that food tastes better when you share it.", f'"Sharing is better than keeping," said {s.h}.']),
    ]


def storm(s: Cast) -> list[str]:
    p = s.c.pick
    return [
        p("a", [f"{when(s)}, dark clouds came over the hills.", f"{when(s)}, the sky turned grey and the wind began to blow."]),
        p("b", ["The rain came down hard, and the thunder was loud.", "Soon it rained and rained, and thunder rolled over the land."]),
        p("c", [f"{s.H} was far from home and very scared.", f"{s.H} was cold and wet and did not know where to go."]),
        p("d", [f"Then {s.he} saw a small light between the trees.", "Then a friendly voice called from a little house."]),
        p("e", [f'It was {an(s.friend)}. "Come in," said {s.f}. "It is warm in here."',
                f'"Come inside, quickly!" said {an(s.friend)}. "You can stay with me."']),
        p("f", [f"{s.F} gave {s.him} a warm blanket and some hot soup.", f"{s.F} made a cup of tea and told {s.him} a story."]),
        p("g", ["They listened to the rain and were not afraid any more.", "Outside the storm was loud, but inside it was warm and safe."]),
        p("h", ["In the morning, the sun came out, and there was a big rainbow in the sky.",
                "When the rain stopped, the whole world was clean and bright."]),
    ]


def lost_home(s: Cast) -> list[str]:
    p = s.c.pick
    return [
        p("a", [f"{when(s)}, {s.h} went for a long walk.", f"{when(s)}, {s.h} followed {s.a_colour} butterfly."]),
        p("b", [f"{s.He} walked and walked until {s.he} did not know where {s.he} was.", f"Soon {s.he} was far away, and nothing looked the same."]),
        p("c", [f'"I am lost," {s.he} said. "How can I find my way home?"', f'"Where is my home?" {s.he} cried.']),
        p("d", [f"{cap(an(s.friend))} was sitting on a stone near the path.", f"Just then, {s.he} met {an(s.friend)}."]),
        p("e", [f'"Can you help me?" asked {s.h}.', f'"Why are you crying?" asked {s.f}. "I am lost," said {s.h}.']),
        p("f", [f'"Of course," said {s.f}. "Come with me."', f'"I know the way," said {s.f}. "Follow me."']),
        p("g", ["They crossed the bridge, passed the mill, and walked up the hill.", "They went over the hill, along the river, and past the old tree."]),
        p("h", [f"At last, {s.h} saw {s.his} home and ran as fast as {s.he} could.", f"And there it was: home, with a light in the window."]),
    ]


def help_friend(s: Cast) -> list[str]:
    p = s.c.pick
    trouble, way = p("trouble", [
        ("was stuck in a deep hole", "let down a long rope and pulled as hard as {he} could"),
        ("was stuck in the mud", "laid a big branch over the mud and pulled"),
        ("had a thorn in the foot", "took out the thorn very gently"),
        ("had fallen into the river", "held out a long stick and pulled"),
        ("was caught in a net", "pulled at the knots until the net came open")])
    return [
        p("a", [f'{when(s)}, {s.h} heard a small voice. "Help!"', f"{when(s)}, {s.h} heard someone crying."]),
        p("b", [f"{s.He} ran to see what it was.", f"{s.He} followed the sound down the path."]),
        f"It was {an(s.friend)} that {trouble}.",
        p("c", [f'"Please help me," said {s.f}.', f'"I cannot get out by myself," said {s.f}.' if "stuck" in trouble or "net" in trouble
                else f'"It hurts, and I am afraid," said {s.f}.']),
        p("d", [f'"Do not be afraid," said {s.h}. "I am here."', f"{s.H} was not very big, but {s.he} had a good idea."]),
        f"{s.He} {way.format(he=s.he)}.",
        p("e", [f"Soon {s.f} was free and safe.", f"At last, {s.f} was safe."]),
        p("f", [f'"Thank you, {s.name or "little friend"}!" said {s.f}. "You are very brave."', f'"You saved me," said {s.f}. "I will never forget it."']),
    ]


def garden(s: Cast) -> list[str]:
    p = s.c.pick
    plant = p("plant", ["flower", "tree", "pumpkin", "sunflower", "carrot"])
    return [
        p("a", [f"{when(s)}, {s.h} found a tiny seed.", f"{when(s)}, {an(s.friend)} gave {s.him} a tiny seed."]),
        p("b", [f"{s.He} put it in the ground and gave it some water.", f"{s.He} made a small hole in the ground and planted the seed."]),
        p("c", ["The next day, nothing had happened.", f'"Grow, little seed," {s.he} said, but nothing happened.']),
        p("d", [f'"You must wait," said {s.f}. "Good things take time."', f'{s.F} said, "Give it water and sun, and wait."']),
        p("e", [f"So {s.h} waited and gave it water every day.", f"Every morning, {s.h} brought water and sang a little song."]),
        p("f", ["Then, after a warm rain, a green leaf came up.", "One day, a little green leaf looked out of the ground."]),
        p("g", [f"It grew and grew, and soon it was a big, beautiful {plant}.", f"It grew a little every day until it was a lovely {plant}."]),
        p("h", [f"{s.H} was proud and showed it to all {s.his} friends.", f'"It was worth the wait," said {s.h}.']),
    ]


def dark(s: Cast) -> list[str]:
    p = s.c.pick
    return [
        p("a", [f"But {s.he} was afraid of the dark.", f"There was only one thing {s.he} did not like: the dark."]),
        p("b", [f"Every night, {s.h} hid under the blanket.", f"When the sun went down, {s.he} wanted to hide."]),
        p("c", [f"One night, {an(s.friend)} came to visit.", f"One night, {s.he} heard a soft voice. It was {an(s.friend)}."]),
        p("d", [f'"Come outside with me," said {s.f}. "I want to show you something."', f'"The night is full of lovely things," said {s.f}. "Come and see."']),
        p("e", [f"{s.H} was scared, but {s.he} took a deep breath and went out.", f"Slowly, {s.h} opened the door and looked up."]),
        p("f", ["The sky was full of stars, and the moon was big and round.", "A thousand stars were shining, and fireflies danced in the grass."]),
        p("g", [f'"Oh, how beautiful!" said {s.h}.', f"{s.H} had never seen anything so beautiful."]),
        p("h", [f"From that night on, {s.h} was not afraid of the dark.", f"After that, {s.h} looked at the stars every night before bed."]),
    ]


def race(s: Cast) -> list[str]:
    p = s.c.pick
    return [
        p("a", [f"{when(s)}, there was a big race.", f"{when(s)}, all the animals met for a race."]),
        p("b", [f'{s.F} laughed and said, "I am the fastest of all."', f'"I will win," said {s.f}. "You are too slow."']),
        p("c", [f"{s.H} did not say anything and went to the start.", f'"We will see," said {s.h}.']),
        p("d", ["One, two, three, and off they went!", "The bell rang, and the race began."]),
        p("e", [f"{s.F} was soon far ahead and stopped to rest.", f"{s.F} ran so fast that {s.h} could not see it any more."]),
        p("f", [f"But {s.h} did not stop and went on, step by step.", f"{s.H} was tired, but {s.he} did not give up."]),
        p("g", [f"When {s.f} woke up, it was too late: {s.h} had won!" if s.c.chance(0.5) else f"In the end, {s.h} crossed the line first!",
                f"Near the end, {s.f} fell down, and {s.h} stopped to help."]),
        p("h", ["They became good friends, and nobody laughed at anybody again.", f'"You were great," said {s.f}, and they shook hands.']),
    ]


def party(s: Cast) -> list[str]:
    p = s.c.pick
    filling = p("filling", ["cherries", "berries", "honey", "nuts", "cream", "apples"])
    return [
        p("a", [f"{when(s)}, it was {s.name + chr(39) + 's' if s.name else s.his} birthday.", f"It was the day of {s.his} birthday."]),
        p("b", [f"{s.He} woke up early, but nobody said a word.", f"{s.He} waited for {s.his} friends, but no one came."]),
        p("c", [f'"Maybe they forgot," thought {s.h}.', f"{s.H} felt a little sad."]),
        p("d", [f"Then {an(s.friend)} knocked on the door.", f"In the afternoon, {an(s.friend)} came to the door."]),
        p("e", [f'"Come with me, please," said {s.f}.', f'"Close your eyes and follow me," said {s.f}.']),
        p("f", ["They walked to a place under the trees.", "They walked through the garden to the old tree."]),
        p("g", [f'"Surprise!" cried all {s.his} friends. There was a big cake with {filling}.', f'"Happy birthday!" they all sang. There was a cake with {filling}.']),
        p("h", [f"They danced and played until the stars came out.", f"It was the best birthday {s.h} had ever had."]),
    ]


def gift(s: Cast) -> list[str]:
    p, t = s.c.pick, s.thing
    return [
        p("a", [f"{when(s)}, {s.h} found {s.a_colour} {t} on the path.", f"{when(s)}, {s.h} saw {s.a_colour} {t} in the grass."]),
        p("b", [f'"What a lovely {t}!" {s.he} said.', f'"Whose {t} is this?" {s.he} asked.']),
        p("c", [f"{s.He} wanted to keep it, but {s.he} knew that it was not {'hers' if s.he == 'she' else 'his'}.", f"{s.He} picked it up and went from door to door."]),
        p("d", [f'"Is this your {t}?" {s.he} asked everyone {s.he} met.', f"{s.He} asked the hen, the goat, and the old miller."]),
        p("e", [f"At the end of the road sat {an(s.friend)} that looked very sad.", f"At last, {s.he} came to {an(s.friend)} that was crying."]),
        p("f", [f'"I have lost my {t}," said {s.f}. "My grandmother gave it to me."', f'"My {t} is gone," said {s.f}, "and I loved it so much."']),
        p("g", [f'"Here it is!" said {s.h}, and gave it back.', f'{s.H} smiled and held out the {t}. "Is this the one?"']),
        p("h", [f"{s.F} was so glad that they became friends.", f'"You are very honest," said {s.f}. "Please be my friend."']),
    ]


def build(s: Cast) -> list[str]:
    p = s.c.pick
    what = p("what", ["boat", "house", "bridge", "tree house", "sandcastle"])
    return [
        p("a", [f"{when(s)}, {s.h} wanted to build a {what}.", f'{when(s)}, {s.h} said, "I will build a {what}."']),
        p("b", [f"{s.He} worked all day, but the {what} fell down.", f"{s.He} worked and worked, but it was too much for one."]),
        p("c", [f'"May I help you?" asked {an(s.friend)}.', f'{cap(an(s.friend))} came by and said, "I am good at building."']),
        p("d", [f'"No, I can do it alone," said {s.h}. But the {what} fell down again.', f'{s.H} thought about it. "Yes, please," {s.he} said.']),
        p("e", ["So they worked together.", "So they made a plan and began again."]),
        p("f", [f"{s.F} carried the wood, and {s.h} put the pieces together.", f"{s.H} held the boards, and {s.f} tied them with a rope."]),
        p("g", [f"In the evening, the {what} was ready, and it was strong.", f"When the sun went down, the {what} was done."]),
        p("h", ['"Together we can do anything," they said.', f"{s.H} learned that work is easier with a friend."]),
    ]


def moon(s: Cast) -> list[str]:
    p = s.c.pick
    return [
        p("a", [f"Every night, {s.h} looked at the moon.", f"One night, the moon was big and bright."]),
        p("b", [f'"I want to touch the moon," {s.he} said.', f'"I wish I could visit the moon," said {s.h}.']),
        p("c", [f"{s.He} climbed the highest hill, but the moon was still far away.", f"{s.He} jumped as high as {s.he} could, but the moon was too high."]),
        p("d", [f"{s.F} saw {s.him} and asked what {s.he} was doing.", f'"What are you doing?" asked {an(s.friend)}.']),
        p("e", [f'"I want the moon," said {s.h}, "but I cannot reach it."', f'"The moon is too far away," said {s.h}.']),
        p("f", [f"{s.F} took {s.him} to a quiet pond.", f'"Come with me," said {s.f}, and they went to the lake.']),
        p("g", ["There was the moon, shining in the water.", f"In the water, {s.he} saw the moon, round and white."]),
        p("h", [f"{s.H} touched the water very softly, and the moon smiled back.", f'"Now I have touched the moon," said {s.h} with a smile.']),
    ]


def snow(s: Cast) -> list[str]:
    p = s.c.pick
    return [
        p("a", ["One winter morning, everything was white.", "One cold morning, snow covered the ground."]),
        p("b", [f'"Snow!" cried {s.h}, and ran outside.', f"{s.H} had never seen snow before."]),
        p("c", [f"{s.He} made a snowball, and then a bigger one.", f"{s.He} jumped into the snow and laughed."]),
        p("d", [f"{cap(an(s.friend))} came to play too.", f'"May I play with you?" asked {an(s.friend)}.']),
        p("e", [f"Together they made a snowman with a carrot nose.", f"Together they built a tall snowman and gave it {s.a_colour} scarf."]),
        p("f", ["They slid down the hill again and again.", "They played until their noses were red."]),
        p("g", ["When it got dark, they went inside and drank hot milk.", f"In the evening, they sat by the fire and ate {s.food}."]),
        p("h", [f'"Winter is lovely," said {s.h}.', f'"I hope it snows again tomorrow," said {s.f}.']),
    ]


def treasure(s: Cast) -> list[str]:
    p = s.c.pick
    return [
        p("a", [f"{when(s)}, {s.h} found an old map.", f"{when(s)}, {s.h} found a map inside a bottle."]),
        p("b", ["On the map was a big red cross.", '"Here lies the treasure," it said.']),
        p("c", [f"{s.He} asked {s.his} friend, {s.f}, to come along.", f"{s.He} showed it to {s.f}, and they set out at once."]),
        p("d", ["They crossed a wide river and climbed a steep hill.", "They walked through the woods and over the hills."]),
        p("e", [f"On the way, {s.f} was tired, so {s.h} carried the bags.", f"When {s.h} was afraid, {s.f} held {s.his} hand."]),
        p("f", ["At last, they came to the red cross and began to dig.", "Under an old tree, they dug a deep hole."]),
        p("g", [f"There was a box, and in it was {s.a_colour} {s.thing} and a letter.", "There was a box, but it was empty except for a letter."]),
        p("h", ['"The real treasure is the friend at your side," said the letter.', '"Whoever comes this far together is rich," said the letter.']),
    ]


def sing_sad(s: Cast) -> list[str]:
    p = s.c.pick
    return [
        p("a", [f"{when(s)}, {s.h} saw that {s.f} was sad.", f"{when(s)}, {s.h} met {an(s.friend)} that did not smile."]),
        p("b", [f'"What is wrong?" asked {s.h}.', f'"Why are you so sad?" asked {s.h}.']),
        p("c", [f'"I have no one to play with," said {s.f}.', f'"Nobody knows me here," said {s.f}.']),
        p("d", [f"{s.H} wanted to make {s.f} happy.", f"{s.H} thought hard. How could {s.he} help?"]),
        p("e", [f"{s.He} told a joke, but {s.f} did not laugh.", f"{s.He} picked some {s.colour} flowers, but {s.f} only sighed."]),
        p("f", [f'Then {s.he} said, "Come and play with me. You can be my friend."', f"Then {s.he} sat down next to {s.f} and began to sing."]),
        p("g", [f"{s.F} looked up and smiled for the first time.", f"Slowly, {s.f} began to smile."]),
        p("h", [f"They played all afternoon, and {s.f} was never lonely again.", "From then on, they met every day."]),
    ]


PLOTS = {"lost": lost_thing, "learning": learn_skill, "sharing": share_food, "storm": storm, "home": lost_home, "helping": help_friend,
         "garden": garden, "dark": dark, "race": race, "birthday": party, "honesty": gift, "building": build, "moon": moon,
         "snow": snow, "treasure": treasure, "friendship": sing_sad}
# How a prompt may ask for a plot: "a story about ...".
PLOT_PHRASES = {"lost": ["a lost {thing}"], "learning": ["learning something new", "never giving up"], "sharing": ["sharing", "food"],
                "storm": ["a storm", "the rain", "thunder"], "home": ["getting lost", "finding the way home"],
                "helping": ["helping others", "being brave"], "garden": ["a garden", "a tiny seed", "flowers"],
                "dark": ["the dark", "the night", "the stars"], "race": ["a race"], "birthday": ["a birthday", "a party"],
                "honesty": ["being honest", "a {thing}"], "building": ["working together", "building something"],
                "moon": ["the moon"], "snow": ["snow", "winter"], "treasure": ["a treasure", "a map", "an adventure"],
                "friendship": ["friendship", "a friend", "being kind"]}


# Heroes of one temperament have one favourite plot, so that a reply to a bare "tell me a story about a fox" is a sure one.
FAVOURITES = {f"temperament {i}": plot for i, plot in enumerate(["moon", "garden", "snow", "dark", "storm", "helping", "race", "learning"])}
FAVOURITES |= {"girl": "sharing", "boy": "treasure", "other": "friendship"}


def ending(s: Cast, bedtime: bool) -> str:
    if bedtime:
        return s.c.pick("sleep", [f"Then {s.h} closed {s.his} eyes and fell asleep. Good night!",
                                  f"That night, {s.h} fell asleep with a smile. Good night, and sweet dreams."])
    return s.c.pick("end", [f"From that day on, {s.h} and {s.f} were the best of friends.", f"{s.H} went home happy and tired.",
                            "And they all lived happily ever after.", f"That night, {s.h} fell asleep with a smile.",
                            f"And {s.h} never forgot that day.", "The end."])


def tell(rng: random.Random, request: Request, start: list[str] | None = None) -> str:
    """One story. `start` replaces the opening by sentences that the prompt gave and that name the hero already."""
    s = Cast(rng, request)
    plot = request.plot or (FAVOURITES[s.c.key] if s.c.chance(0.7) else s.c.even(PLOTS))
    beats = PLOTS[plot](s)
    first = start if start is not None else opening(s)
    sentences = [*(first[:1] if request.short else first), *beats]
    if not request.short or request.bedtime:
        sentences.append(ending(s, request.bedtime))
    text = introduce(" ".join(sentences), s.friend)
    return text


def introduce(text: str, friend: str) -> str:
    """Gives the friend an indefinite article at its first mention, unless it is named as the hero's friend there."""
    definite = re.search(rf"\b[Tt]he {friend}\b", text)
    if definite and not re.search(rf"\b([Aa]n? {friend}|friend, the {friend})\b", text[:definite.end()]):
        phrase = an(friend)
        phrase = cap(phrase) if definite.group()[0] == "T" else phrase
        return text[:definite.start()] + phrase + text[definite.end():]
    return text


def heroine(rng: random.Random) -> str:
    kind = rng.random()
    return rng.choice(list(ANIMALS)) if kind < 0.65 else rng.choice(RARE_HEROES) if kind < 0.85 else rng.choice(["girl", "boy"])


def plain(rng: random.Random) -> str:
    """A story as bare text. Some begin in the middle of the usual opening, as a person who types the first words would."""
    request = Request(bedtime=rng.random() < 0.08)
    kind = rng.random()
    if kind < 0.62:
        return tell(rng, request)
    request.noun = heroine(rng)
    request.adjective = rng.choice(ADJECTIVES)
    child = request.noun in ("boy", "girl")
    if child or kind > 0.86:
        request.name = rng.choice(GIRLS if request.noun == "girl" else BOYS if request.noun == "boy" else GIRLS + BOYS)
    s = Cast(rng, request)
    p = s.c.pick
    request.place, request.friend = s.place, s.friend
    love = f"{s.He} loved to {s.love}."
    if child or kind > 0.86:
        first = p("start2", [f"{s.name} was {s.intro}.", f"{s.name} and {s.f} were friends.", f"Every morning, {s.name} liked to {s.love}.",
                             f"{s.name} lived {s.place}.", f"{s.name} woke up early and looked out of the window."])
        return tell(rng, request, [first, love] if s.love not in first else [first])
    first = p("start", [f"The {s.adj} {s.noun} lived {s.place}.", f"The {s.adj} {s.noun} woke up early.",
                        f"The {s.adj} {s.noun} loved to {s.love}.", f"The {s.adj} {s.noun} was looking for a friend.",
                        f"Deep in the forest, there lived {s.intro}.", f"In a quiet valley, there lived {s.intro}.",
                        f"It was a rainy day, and the {s.adj} {s.noun} sat at the window.",
                        f"One day, {s.intro} went for a walk.", f"{cap(s.intro)} lived {s.place}.",
                        f"High up in the mountains, there lived {s.intro}.", f"My favourite story is about {s.intro}."])
    request.name = s.name if s.name and rng.random() < 0.4 else ""
    lines = [first]
    if request.name:
        lines.append(f"{s.His} name was {s.name}.")
    if s.love not in first:
        lines.append(love)
    return tell(rng, request, lines)
