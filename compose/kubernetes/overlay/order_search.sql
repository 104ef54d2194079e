select o.id, o.status, json_build_object('name', c.name, 'city', c.city) as customer
  from orders o left join customers c on c.id = o.customer_id
